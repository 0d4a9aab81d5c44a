// SPDX-License-Identifier: Apache-2.0
#include "apps/simulate/sim_models.h"

#include <algorithm>

#include "apps/support/number.h"

namespace kvcast::simulate {
namespace {

// Larger than vLLM's default of 16, so that a simulation has fewer blocks. All windows, and the
// blocks of the bundled traces, are multiples of this size.
constexpr int64_t kBlock = 64;
// Blocks of a model with Mamba states are as large as a state.
constexpr int64_t kMambaBlock = 512;

constexpr double kFlops = 989.5e12 * 0.55;
constexpr double kWeightBytesPerS = 3.35e12 * 0.73;
constexpr double kKvBytesPerS = 3.35e12 * 0.51;
constexpr double kLinkBytesPerS = 50e9 * 0.8;

GroupSpec Full(int64_t block = kBlock) {
  return {.kind = SpecKind::kFullAttention, .block_size = block};
}
GroupSpec Window(int64_t tokens) {
  return {.kind = SpecKind::kSlidingWindow, .block_size = kBlock, .sliding_window = tokens};
}
GroupSpec ReplayedWindow(int64_t tokens) {
  GroupSpec group = Window(tokens);
  group.prefix_cacheable = false;
  return group;
}
GroupSpec Mamba() {
  return {.kind = SpecKind::kMamba, .block_size = kMambaBlock, .mamba_mode = MambaMode::kAlign};
}

struct Sizes {
  double active_parameters = 0;
  double weight_bytes = 0;
  double machines = 1;  // GPUs that share the work (tensor parallel)
  int full_layers = 0;
  int window_layers = 0;
  int other_layers = 0;
  double heads_times_size = 4096;  // query heads times their size
  double kv_bytes_per_layer = 0;   // of one token
  int64_t window = 0;
};

tools::StepTime TimeOf(const Sizes& sizes) {
  const double flops = kFlops * sizes.machines;
  const double pair = 4 * sizes.heads_times_size / flops;
  const int layers = sizes.full_layers + sizes.window_layers + sizes.other_layers;
  tools::StepTime time;
  time.base_s =
      0.126e-3 + 0.032e-3 * layers + sizes.weight_bytes / (kWeightBytesPerS * sizes.machines);
  time.prefill = {.token_s = 2 * sizes.active_parameters / flops,
                  .full_pair_s = pair * sizes.full_layers,
                  .window_pair_s = pair * sizes.window_layers,
                  .window = sizes.window};
  time.decode_token_s = 46e-6;
  time.decode_context_s =
      sizes.full_layers * sizes.kv_bytes_per_layer / (kKvBytesPerS * sizes.machines);
  return time;
}

SimModel Make(std::string_view name, std::string_view description, std::vector<GroupSpec> groups,
              const Sizes& sizes) {
  return {.name = name,
          .description = description,
          .groups = std::move(groups),
          .time = TimeOf(sizes),
          .load_tokens_per_s =
              kLinkBytesPerS * sizes.machines / (sizes.kv_bytes_per_layer * sizes.full_layers)};
}

std::vector<SimModel> MakeModels() {
  constexpr double kKv8 = 2 * 8 * 128 * 2;  // K and V, 8 heads of 128, 2 bytes per value
  std::vector<SimModel> models = {
      Make("hybrid", "9B, 12 full-attention and 36 sliding-window layers (1024 tokens), 1 GPU",
           {Full(), Window(1024), Window(1024), Window(1024)},
           {.active_parameters = 9e9,
            .weight_bytes = 18e9,
            .full_layers = 12,
            .window_layers = 36,
            .kv_bytes_per_layer = kKv8,
            .window = 1024}),
      Make("full", "9B, 48 full-attention layers, 1 GPU", {Full()},
           {.active_parameters = 9e9,
            .weight_bytes = 18e9,
            .full_layers = 48,
            .kv_bytes_per_layer = kKv8}),
      Make("dense-32b", "32B, 64 full-attention layers, 2 GPUs", {Full()},
           {.active_parameters = 32.8e9,
            .weight_bytes = 65.6e9,
            .machines = 2,
            .full_layers = 64,
            .heads_times_size = 8192,
            .kv_bytes_per_layer = kKv8}),
      Make("gpt-oss",
           "21B with 3.6B active, 12 full-attention and 12 sliding-window layers (128 tokens), 1 "
           "GPU",
           {Window(128), Full()},
           {.active_parameters = 3.6e9,
            .weight_bytes = 12e9,
            .full_layers = 12,
            .window_layers = 12,
            .kv_bytes_per_layer = 2 * 8 * 64 * 2,
            .window = 128}),
      Make("gemma3", "27B, 10 full-attention and 52 sliding-window layers (1024 tokens), 2 GPUs",
           {Window(1024), Window(1024), Window(1024), Window(1024), Window(1024), Full()},
           {.active_parameters = 27e9,
            .weight_bytes = 54e9,
            .machines = 2,
            .full_layers = 10,
            .window_layers = 52,
            .kv_bytes_per_layer = 2 * 16 * 128 * 2,
            .window = 1024}),
      Make("mamba", "9B, 12 full-attention and 36 Mamba layers, 1 GPU",
           {Full(kMambaBlock), Mamba(), Mamba(), Mamba()},
           {.active_parameters = 9e9,
            .weight_bytes = 18e9,
            .full_layers = 12,
            .other_layers = 36,
            .kv_bytes_per_layer = kKv8}),
      Make("replay",
           "the model hybrid with windows of 128 tokens, which are computed again after a hit",
           {Full(), ReplayedWindow(128)},
           {.active_parameters = 9e9,
            .weight_bytes = 18e9,
            .full_layers = 12,
            .window_layers = 36,
            .kv_bytes_per_layer = kKv8,
            .window = 128}),
  };
  models.back().replay_tokens = 128;
  return models;
}

// Blocks that an idle cache needs for a sequence of `tokens` tokens, with retention 0.
double BlocksOf(const std::vector<GroupSpec>& groups, int64_t tokens) {
  double blocks = 0;
  for (const GroupSpec& group : groups) {
    if (!TakesPart(group)) continue;
    const int64_t held = IsFullKind(group.kind) ? tokens
                         : IsWindowKind(group.kind)
                             ? std::min(tokens, group.sliding_window + group.block_size)
                             : group.block_size;
    blocks += static_cast<double>(held) / static_cast<double>(group.block_size);
  }
  return blocks;
}

}  // namespace

const std::vector<SimModel>& SimModels() {
  static const auto* models = new std::vector<SimModel>(MakeModels());
  return *models;
}

Result<SimModel> FindSimModel(std::string_view name) {
  std::string names;
  for (const SimModel& model : SimModels()) {
    if (model.name == name) return model;
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  }
  return Status(StatusCode::kInvalidArgument,
                "--model: expected one of " + names + ", got '" + std::string(name) + "'");
}

Result<CacheConfig> MakeSimCache(const SimModel& model, const SimCacheOptions& options,
                                 int64_t longest_tokens) {
  CacheConfig config;
  config.groups = model.groups;
  config.replay_tokens = model.replay_tokens;
  config.max_model_len = kMaxSequenceTokens;
  config.max_in_flight_tokens = 8192;
  config.chain_form.extra_keys = ExtraKeyScheme::kTagged;
  if (options.retention != "dense") {
    const auto interval = tools::ParseNumber(options.retention);
    if (!interval) {
      return Status(
          StatusCode::kInvalidArgument,
          "--retention: expected 'dense' or a number of tokens, got '" + options.retention + "'");
    }
    config.retention_interval = *interval;
  }
  const double sequences = static_cast<double>(options.fleet_tokens) /
                           static_cast<double>(options.mean_tokens) /
                           static_cast<double>(options.engines);
  const RequestLimits limits = LimitsOf(config);
  int64_t longest = 0;
  double all = 0;  // blocks of one request, if the cache keeps every block
  for (const GroupSpec& group : config.groups) {
    const auto most = MaxAdmissionBlocks(group, limits.max_model_len, limits.max_in_flight_tokens);
    const int64_t whole = longest_tokens / group.block_size + 2;
    longest += std::min(most.value_or(whole), whole);
    all += static_cast<double>(whole);
  }
  const double blocks = std::min(sequences * BlocksOf(model.groups, options.mean_tokens),
                                 all * static_cast<double>(options.requests));
  config.num_blocks = 1 + std::max(static_cast<int64_t>(blocks), 2 * longest);
  return ValidateCacheConfig(std::move(config));
}

}  // namespace kvcast::simulate

// SPDX-License-Identifier: Apache-2.0
#include "router/names/kind_proofs.h"

namespace kvcast::router {
namespace {

constexpr size_t kPlain = static_cast<size_t>(KeyKind::kPlain);
constexpr size_t kLookahead = static_cast<size_t>(KeyKind::kLookahead);

template <typename Function>
void ForEach(KeyKindSet kinds, Function function) {
  for (size_t kind = 0; kind < kKeyKinds; ++kind) {
    if (kinds[kind]) function(kind);
  }
}

}  // namespace

bool KindProofs::IsDue(size_t kind, KeyKindSet keyed) {
  Turn& turn = turns_[kind];
  bool due = false;
  if (keyed[kind]) {
    due = turn.until_sample == 0;
    turn.until_sample = due ? period_ - 1 : turn.until_sample - 1;
  }
  return due || (!IsProven(states_[kind].proof) && turn.misses < kSchemeMissesToGiveUp);
}

KeyKindSet KindProofs::TakeTurns(KeyKindSet present) {
  KeyKindSet due;
  ForEach(present, [&](size_t kind) { due[kind] = IsDue(kind, KeyedKinds()); });
  return due;
}

void KindProofs::RestartTurns() {
  for (Turn& turn : turns_) turn.until_sample = 0;
}

void KindProofs::NoteLookahead(int64_t lookahead) {
  if (lookahead == lookahead_) return;
  lookahead_ = lookahead;
  for (const size_t kind : {kPlain, kLookahead}) states_[kind] = {};
}

bool KindProofs::Fit(KeyKindSet kinds, ExtraKeyScheme form, int64_t lookahead) {
  NoteLookahead(lookahead);
  const KeyProof keyed = form == ExtraKeyScheme::kBare ? KeyProof::kBare : KeyProof::kTagged;
  bool contradicted = false;
  ForEach(kinds, [&](size_t kind) {
    const KeyProof proof = KeyedKinds()[kind] ? keyed : KeyProof::kProven;
    if (IsProven(states_[kind].proof) && states_[kind].proof != proof) {
      ++counters_[kind].contradictions;
      contradicted = true;
    }
    ++counters_[kind].fits;
    states_[kind] = {proof, ""};
    turns_[kind].misses = 0;
  });
  if ((kinds & KeyedKinds()).any()) form_ = form;
  return contradicted;
}

bool KindProofs::Refute(KeyKindSet kinds) {
  bool contradicted = false;
  ForEach(kinds, [&](size_t kind) {
    ++counters_[kind].misses;
    ++turns_[kind].misses;
    const bool proven = IsProven(states_[kind].proof);
    counters_[kind].contradictions += proven;
    contradicted |= proven;
    if (!proven && states_[kind].proof == KeyProof::kRefuted) return;  // Keep the first reason.
    states_[kind] = {KeyProof::kRefuted,
                     proven ? "a store contradicts the proof" : "a store does not fit"};
  });
  return contradicted;
}

void KindProofs::NoteOpen(KeyKindSet kinds, std::string_view reason) {
  ForEach(kinds, [&](size_t kind) {
    ++turns_[kind].misses;
    KeyKindState& state = states_[kind];
    // Keeps the first reason, so that stores with other reasons do not change the verdict.
    if (state.proof == KeyProof::kUnproven && state.reason.empty()) state.reason = reason;
  });
}

void KindProofs::Withdraw(KeyKindSet kinds, std::string_view reason) {
  ForEach(kinds, [&](size_t kind) {
    if (IsProven(states_[kind].proof)) states_[kind] = {KeyProof::kUnproven, std::string(reason)};
  });
}

void KindProofs::Reset() {
  states_ = {};
  turns_ = {};
  form_.reset();
  lookahead_ = 0;
}

KeyKindSet KindProofs::Unproven(KeyKindSet kinds) const {
  ForEach(kinds, [&](size_t kind) { kinds[kind] = !IsProven(states_[kind].proof); });
  return kinds;
}

}  // namespace kvcast::router

namespace kvcast {
namespace {

router::KeyKindSet KindsOfInputs(const HashInputs& inputs, int64_t lookahead) {
  using router::SetOf;
  router::KeyKindSet kinds;
  if (!inputs.cache_salt.empty()) kinds |= SetOf(KeyKind::kSalt);
  if (!inputs.lora_name.empty()) kinds |= SetOf(KeyKind::kLora);
  if (!inputs.mm_items.empty()) kinds |= SetOf(KeyKind::kImages);
  if (inputs.prompt_embeddings || !inputs.embedding_digests.empty()) {
    kinds |= SetOf(KeyKind::kEmbeddings);
  }
  return kinds | SetOf(lookahead > 0 ? KeyKind::kLookahead : KeyKind::kPlain);
}

}  // namespace

std::string WhyUnprovenForm(const SchemeVerdict& verdict, const HashInputs& inputs) {
  using router::SetOf;
  if (!verdict.scheme || verdict.scheme->none_hash.empty()) return "the hash scheme is not known";
  router::KeyKindSet kinds = KindsOfInputs(inputs, verdict.lookahead);
  // An adapter and embeddings give every block of the prompt a key. So the proof of this kind of
  // key is enough, and kPlain and kLookahead need no proof of their own.
  const router::KeyKindSet everywhere = SetOf(KeyKind::kLora) | SetOf(KeyKind::kEmbeddings);
  if ((kinds & everywhere).any()) kinds &= router::KeyedKinds();
  std::string why;
  std::optional<KeyProof> form;
  for (size_t kind = 0; kind < kKeyKinds; ++kind) {
    if (!kinds[kind]) continue;
    const auto& [proof, reason] = verdict.kinds[kind];
    const bool keyed = router::KeyedKinds()[kind];
    const bool other_form = IsProven(proof) && keyed && form && *form != proof;
    if (IsProven(proof) && keyed) form = proof;
    if (IsProven(proof) && !other_form) continue;
    why += why.empty() ? "" : ", ";
    why += KeyKindName(static_cast<KeyKind>(kind));
    why += other_form ? " keys have another form (bare or tagged)"
                      : " keys are " + std::string(KeyProofName(proof));
    if (!reason.empty()) why += " (" + reason + ")";
  }
  return why;
}

std::optional<ChainForm> ProvenForm(const SchemeVerdict& verdict, const HashInputs& inputs) {
  if (!WhyUnprovenForm(verdict, inputs).empty()) return std::nullopt;
  ChainForm form{ExtraKeyScheme::kBare, verdict.lookahead};
  const router::KeyKindSet kinds = KindsOfInputs(inputs, verdict.lookahead);
  for (size_t kind = 0; kind < kKeyKinds; ++kind) {
    const bool tagged = kinds[kind] && verdict.kinds[kind].proof == KeyProof::kTagged;
    if (tagged) form.extra_keys = ExtraKeyScheme::kTagged;
  }
  return form;
}

ChainForm LikelyForm(const SchemeVerdict& verdict) {
  size_t bare = 0;
  size_t tagged = 0;
  for (const KeyKindState& state : verdict.kinds) {
    bare += state.proof == KeyProof::kBare;
    tagged += state.proof == KeyProof::kTagged;
  }
  const bool is_tagged = bare == tagged ? verdict.lookahead > 0 : tagged > bare;
  return {is_tagged ? ExtraKeyScheme::kTagged : ExtraKeyScheme::kBare, verdict.lookahead};
}

std::string_view KeyKindName(KeyKind kind) {
  constexpr std::string_view kNames[kKeyKinds] = {"plain",  "salt",       "lora",
                                                  "images", "embeddings", "lookahead"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view KeyProofName(KeyProof proof) {
  constexpr std::string_view kNames[] = {"unproven", "proven", "bare", "tagged", "refuted"};
  return kNames[static_cast<size_t>(proof)];
}

}  // namespace kvcast

// The block writer of a build without a CUDA toolkit. No function here is ever called, because no
// device exists.
// SPDX-License-Identifier: Apache-2.0
#include "apps/gpu/block_writer.h"

namespace kvcast::cuda {
namespace {

Status NoCuda() { return {StatusCode::kUnavailable, "this build has no CUDA"}; }

}  // namespace

class BlockWriter::Impl {};
BlockWriter::BlockWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockWriter::~BlockWriter() = default;
Result<std::unique_ptr<BlockWriter>> BlockWriter::Create(const CudaDevice&, std::byte*, size_t) {
  return NoCuda();
}
Status BlockWriter::Fill(std::span<const BlockId>, std::span<const uint64_t>) { return NoCuda(); }
Result<int64_t> BlockWriter::CountWrong(std::span<const BlockId>, std::span<const uint64_t>) {
  return NoCuda();
}
void* BlockWriter::Event() { return nullptr; }

}  // namespace kvcast::cuda

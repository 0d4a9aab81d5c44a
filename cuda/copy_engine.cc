// SPDX-License-Identifier: Apache-2.0
#include "cuda/copy_engine.h"

#include <algorithm>
#include <string>

namespace kvcast::cuda {
namespace {

CUmemcpySrcAccessOrder OrderOf(const CopyEngineOptions& options) {
  return options.unordered ? CU_MEMCPY_SRC_ACCESS_ORDER_ANY : CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
}

unsigned FlagsOf(const CopyEngineOptions& options) {
  return options.prefer_overlap ? CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE
                                : CU_MEMCPY_FLAG_DEFAULT;
}

CUmemcpy3DOperand Operand(const void* address, size_t pitch) {
  CUmemcpy3DOperand operand{};
  operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operand.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(address);
  operand.op.ptr.rowLength = pitch;
  return operand;
}

CUDA_MEMCPY3D_BATCH_OP RowsOf(const CopyOp& op, const CopyEngineOptions& options) {
  CUDA_MEMCPY3D_BATCH_OP rows{};
  rows.src = Operand(op.src, op.src_pitch);
  rows.dst = Operand(op.dst, op.dst_pitch);
  rows.extent = {op.row_bytes, op.rows, 1};
  rows.srcAccessOrder = OrderOf(options);
  rows.flags = FlagsOf(options);
  return rows;
}

// Adds the index of the failed copy to the message. Driver calls before 13.0 report this index.
Status AtCopy(Status status, size_t failed, size_t count) {
  if (status.ok() || failed >= count) return status;
  return {status.code(), status.message() + ", copy " + std::to_string(failed)};
}

// The bytes from `address` to the end of its registration.
size_t ToRegistrationEnd(const PinnedPool& pool, const std::byte* address) {
  const size_t part = pool.registration_bytes();
  return part - static_cast<size_t>(address - pool.base()) % part;
}

}  // namespace

CopyCall CopyEngine::NewestCall(const DriverApi& api) {
  if (api.MemcpyBatchAsync13000 != nullptr) return CopyCall::kBatch13000;
  if (api.MemcpyBatchAsync12080 != nullptr) return CopyCall::kBatch12080;
  return CopyCall::kLoop;
}

bool CopyEngine::HasRows(const DriverApi& api, CopyCall call) {
  return (call == CopyCall::kBatch13000 && api.Memcpy3DBatchAsync13000 != nullptr) ||
         (call == CopyCall::kBatch12080 && api.Memcpy3DBatchAsync12080 != nullptr);
}

Status CopyEngine::Enqueue(CopyDirection direction, std::span<const CopyOp> ops,
                           const CopyEngineOptions& options, CopyDescriptors& descriptors,
                           CUstream stream, CopyEngineCounts& counts) const {
  descriptors.dsts.clear();
  descriptors.srcs.clear();
  descriptors.sizes.clear();
  descriptors.rows.clear();
  const bool rows_as_one = options.rows_as_one && HasRows(device_->api(), options.call);
  for (const CopyOp& op : ops) {
    if (op.bytes() == 0) continue;  // drivers refuse empty copies
    if (op.rows > 1 && rows_as_one && !CrossesRegistrations(direction, op)) {
      descriptors.rows.push_back(RowsOf(op, options));
      continue;
    }
    for (uint32_t row = 0; row < op.rows; ++row) {
      AddRun(direction, op.src + row * op.src_pitch, op.dst + row * op.dst_pitch, op.row_bytes,
             descriptors);
    }
  }
  if (!descriptors.sizes.empty()) {
    KVCAST_RETURN_IF_ERROR(CopyRuns(options, descriptors, stream, counts));
  }
  if (descriptors.rows.empty()) return {};
  return CopyRows(options, descriptors, stream, counts);
}

void CopyEngine::AddRun(CopyDirection direction, const std::byte* src, std::byte* dst, size_t bytes,
                        CopyDescriptors& descriptors) const {
  const bool load = direction == CopyDirection::kLoad;
  while (bytes > 0) {
    const std::byte* const host_address = load ? src : dst;
    const bool cut = host_ != nullptr && host_->registrations() > 1;
    const size_t piece = cut ? std::min(bytes, ToRegistrationEnd(*host_, host_address)) : bytes;
    descriptors.srcs.push_back(reinterpret_cast<CUdeviceptr>(src));
    descriptors.dsts.push_back(reinterpret_cast<CUdeviceptr>(dst));
    descriptors.sizes.push_back(piece);
    src += piece;
    dst += piece;
    bytes -= piece;
  }
}

bool CopyEngine::CrossesRegistrations(CopyDirection direction, const CopyOp& op) const {
  if (host_ == nullptr || host_->registrations() <= 1) return false;
  const bool load = direction == CopyDirection::kLoad;
  const size_t span = (op.rows - 1) * (load ? op.src_pitch : op.dst_pitch) + op.row_bytes;
  return span > ToRegistrationEnd(*host_, load ? op.src : op.dst);
}

Status CopyEngine::CopyRuns(const CopyEngineOptions& options, CopyDescriptors& descriptors,
                            CUstream stream, CopyEngineCounts& counts) const {
  const DriverApi& api = device_->api();
  const size_t count = descriptors.sizes.size();
  counts.descriptors += count;
  // One set of attributes, which applies from the first copy on.
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = OrderOf(options);
  attributes.flags = FlagsOf(options);
  size_t start = 0;
  switch (options.call) {
    case CopyCall::kBatch13000:
      ++counts.calls;
      return device_->Check(api.MemcpyBatchAsync13000(
                                descriptors.dsts.data(), descriptors.srcs.data(),
                                descriptors.sizes.data(), count, &attributes, &start, 1, stream),
                            "cuMemcpyBatchAsync");
    case CopyCall::kBatch12080: {
      ++counts.calls;
      size_t failed = SIZE_MAX;
      const CUresult result = api.MemcpyBatchAsync12080(
          descriptors.dsts.data(), descriptors.srcs.data(), descriptors.sizes.data(), count,
          &attributes, &start, 1, &failed, stream);
      return AtCopy(device_->Check(result, "cuMemcpyBatchAsync"), failed, count);
    }
    case CopyCall::kLoop:
      break;
  }
  for (size_t i = 0; i < count; ++i) {
    ++counts.calls;
    const CUresult result =
        api.MemcpyAsync(descriptors.dsts[i], descriptors.srcs[i], descriptors.sizes[i], stream);
    KVCAST_RETURN_IF_ERROR(AtCopy(device_->Check(result, "cuMemcpyAsync"), i, count));
  }
  return {};
}

Status CopyEngine::CopyRows(const CopyEngineOptions& options, CopyDescriptors& descriptors,
                            CUstream stream, CopyEngineCounts& counts) const {
  const DriverApi& api = device_->api();
  const size_t count = descriptors.rows.size();
  counts.descriptors += count;
  ++counts.calls;
  if (options.call == CopyCall::kBatch13000) {
    return device_->Check(api.Memcpy3DBatchAsync13000(count, descriptors.rows.data(), 0, stream),
                          "cuMemcpy3DBatchAsync");
  }
  size_t failed = SIZE_MAX;
  const CUresult result =
      api.Memcpy3DBatchAsync12080(count, descriptors.rows.data(), &failed, 0, stream);
  return AtCopy(device_->Check(result, "cuMemcpy3DBatchAsync"), failed, count);
}

}  // namespace kvcast::cuda

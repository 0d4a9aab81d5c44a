// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/fake_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "cuda/copy_kernels.h"
#include "tests/cuda/fake_driver_calls.h"

namespace kvcast::cuda::testing {
namespace {

FakeDriver* g_driver = nullptr;
thread_local CUcontext g_current = nullptr;

FakeDriver::Stream& StreamOf(CUstream stream) {
  return *reinterpret_cast<FakeDriver::Stream*>(stream);
}
FakeDriver::Event& EventOf(CUevent event) { return *reinterpret_cast<FakeDriver::Event*>(event); }
constexpr const char* kFunctionNames[] = {kRingKernel,
                                          kWarpKernel,
                                          "tool_copy_block_per_fragment",
                                          "tool_copy_warp_per_fragment",
                                          "tool_gemm",
                                          "tool_touch",
                                          "tool_stall",
                                          "tool_fill",
                                          "tool_check"};

#define ENTER_WITHOUT_CONTEXT(name)                                                           \
  const std::lock_guard lock(FakeDriver::Get().calls);                                        \
  if (const CUresult entered = FakeDriver::Get().Enter(name, false); entered != CUDA_SUCCESS) \
  return entered

void FillDevices(DriverApi& api) {
  api.Init = [](unsigned) -> CUresult { return CUDA_SUCCESS; };
  api.DriverGetVersion = [](int* version) -> CUresult {
    *version = FakeDriver::Get().options.version;
    return CUDA_SUCCESS;
  };
  api.GetErrorName = [](CUresult error, const char** name) -> CUresult {
    *name = error == CUDA_ERROR_INVALID_VALUE     ? "CUDA_ERROR_INVALID_VALUE"
            : error == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                  : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
  };
  api.DeviceGetCount = [](int* count) -> CUresult {
    *count = 1;
    return CUDA_SUCCESS;
  };
  api.DeviceGet = [](CUdevice* device, int ordinal) -> CUresult {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  api.DeviceGetName = [](char* name, int size, CUdevice) -> CUresult {
    std::strncpy(name, "Fake GPU", static_cast<size_t>(size));
    return CUDA_SUCCESS;
  };
  api.DeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) -> CUresult {
    const FakeOptions& options = FakeDriver::Get().options;
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = options.compute_capability / 10;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = options.compute_capability % 10;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = options.numa_node;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = options.maps_host_memory ? 1 : 0;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 100;
        return CUDA_SUCCESS;
      case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        *value = 3;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  };
  api.DeviceTotalMem = [](size_t* bytes, CUdevice) -> CUresult {
    *bytes = FakeDriver::Get().gpu_bytes;
    return CUDA_SUCCESS;
  };
  api.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) -> CUresult {
    ++FakeDriver::Get().live_contexts;
    *context = kContext;
    return CUDA_SUCCESS;
  };
  api.DevicePrimaryCtxRelease = [](CUdevice) -> CUresult {
    --FakeDriver::Get().live_contexts;
    return CUDA_SUCCESS;
  };
  api.CtxSetCurrent = [](CUcontext context) -> CUresult {
    ENTER_WITHOUT_CONTEXT("cuCtxSetCurrent");
    g_current = context;
    return CUDA_SUCCESS;
  };
}

void FillMemory(DriverApi& api) {
  api.MemAlloc = [](CUdeviceptr* address, size_t bytes) -> CUresult {
    ENTER("cuMemAlloc");
    return FakeDriver::Get().Alloc(address, bytes);
  };
  api.MemFree = [](CUdeviceptr address) -> CUresult {
    ENTER("cuMemFree");
    return FakeDriver::Get().allocations.erase(address) == 1 ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
  };
  api.MemHostRegister = [](void* address, size_t bytes, unsigned flags) -> CUresult {
    ENTER("cuMemHostRegister");
    if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0)
      FakeDriver::Get().Fault("registered without DEVICEMAP");
    return FakeDriver::Get().Register(address, bytes);
  };
  api.MemHostUnregister = [](void* address) -> CUresult {
    ENTER("cuMemHostUnregister");
    return FakeDriver::Get().registrations.erase(reinterpret_cast<uintptr_t>(address)) == 1
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  };
  api.MemHostGetDevicePointer = [](CUdeviceptr* alias, void* address, unsigned) -> CUresult {
    ENTER("cuMemHostGetDevicePointer");
    *alias = reinterpret_cast<uintptr_t>(address) + FakeDriver::kAlias;
    return CUDA_SUCCESS;
  };
}

void FillStreams(DriverApi& api) {
  api.StreamCreateWithPriority = [](CUstream* stream, unsigned flags, int) -> CUresult {
    ENTER("cuStreamCreateWithPriority");
    if (flags != CU_STREAM_NON_BLOCKING)
      FakeDriver::Get().Fault("a stream waits for the default stream");
    *stream = FakeDriver::Get().NewStream();
    return CUDA_SUCCESS;
  };
  api.StreamDestroy = [](CUstream stream) -> CUresult {
    ENTER("cuStreamDestroy");
    FakeDriver& driver = FakeDriver::Get();
    if (!driver.IsIdle(stream)) driver.Fault("a stream is destroyed with work in it");
    driver.streams.erase(&StreamOf(stream));
    delete &StreamOf(stream);
    --driver.live_streams;
    return CUDA_SUCCESS;
  };
  api.StreamSynchronize = [](CUstream stream) -> CUresult {
    ENTER("cuStreamSynchronize");
    return FakeDriver::Get().Synchronize(StreamOf(stream));
  };
  api.StreamWaitEvent = [](CUstream stream, CUevent event, unsigned) -> CUresult {
    ENTER("cuStreamWaitEvent");
    FakeDriver::Event& waited = EventOf(event);
    StreamOf(stream).items.push_back(
        {.run = [] {}, .wait_for = &waited, .generation = waited.recorded});
    return CUDA_SUCCESS;
  };
}

void FillEvents(DriverApi& api) {
  api.EventCreate = [](CUevent* event, unsigned flags) -> CUresult {
    ENTER("cuEventCreate");
    ++FakeDriver::Get().live_events;
    auto* const made = new FakeDriver::Event;
    made->timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    FakeDriver::Get().events.insert(made);
    *event = reinterpret_cast<CUevent>(made);
    return CUDA_SUCCESS;
  };
  api.EventDestroy = [](CUevent event) -> CUresult {
    ENTER("cuEventDestroy");
    --FakeDriver::Get().live_events;
    if (EventOf(event).reached < EventOf(event).recorded) {
      FakeDriver::Get().Fault("an event is destroyed before it is reached");
    }
    FakeDriver::Get().events.erase(&EventOf(event));
    delete &EventOf(event);
    return CUDA_SUCCESS;
  };
  api.EventRecord = [](CUevent event, CUstream stream) -> CUresult {
    ENTER("cuEventRecord");
    FakeDriver::Event& recorded = EventOf(event);
    recorded.stream = &StreamOf(stream);
    const uint64_t generation = ++recorded.recorded;
    recorded.stream->items.push_back({.run = [] {},
                                      .issued = FakeDriver::Get().cpu_time,
                                      .generation = generation,
                                      .record = &recorded});
    return CUDA_SUCCESS;
  };
  api.EventQuery = [](CUevent event) -> CUresult {
    ENTER("cuEventQuery");
    FakeDriver& driver = FakeDriver::Get();
    if (driver.runs_by_itself) driver.RunAll();
    return EventOf(event).reached >= EventOf(event).recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  api.EventSynchronize = [](CUevent event) -> CUresult {
    ENTER("cuEventSynchronize");
    return FakeDriver::Get().SynchronizeEvent(EventOf(event));
  };
  api.EventElapsedTime = [](float* milliseconds, CUevent begin, CUevent end) -> CUresult {
    ENTER("cuEventElapsedTime");
    if (!EventOf(begin).timing || !EventOf(end).timing) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = static_cast<float>((EventOf(end).time - EventOf(begin).time) * 1e3);
    return CUDA_SUCCESS;
  };
}

void FillCopies(DriverApi& api) {
  api.MemcpyAsync = [](CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s) -> CUresult {
    ENTER("cuMemcpyAsync");
    return FakeDriver::Get().CopyOne(dst, src, bytes, s);
  };
  api.MemsetD8Async = [](CUdeviceptr dst, unsigned char value, size_t bytes,
                         CUstream stream) -> CUresult {
    ENTER("cuMemsetD8Async");
    StreamOf(stream).items.push_back(
        {.run = [=] { std::memset(reinterpret_cast<void*>(dst), value, bytes); }});
    return CUDA_SUCCESS;
  };
  api.MemcpyBatchAsync13000 = [](CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* starts,
                                 size_t num_attributes, CUstream stream) -> CUresult {
    ENTER("cuMemcpyBatchAsync");
    return FakeDriver::Get().CopyBatch("cuMemcpyBatchAsync 13.0", dsts, srcs, sizes, count,
                                       attributes, starts, num_attributes, nullptr, stream);
  };
  api.MemcpyBatchAsync12080 = [](CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* starts,
                                 size_t num_attributes, size_t* failed,
                                 CUstream stream) -> CUresult {
    ENTER("cuMemcpyBatchAsync");
    return FakeDriver::Get().CopyBatch("cuMemcpyBatchAsync 12.8", dsts, srcs, sizes, count,
                                       attributes, starts, num_attributes, failed, stream);
  };
  api.Memcpy3DBatchAsync13000 = [](size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
                                   unsigned long long flags, CUstream stream) -> CUresult {
    ENTER("cuMemcpy3DBatchAsync");
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return FakeDriver::Get().CopyRows("cuMemcpy3DBatchAsync 13.0", count, ops, nullptr, stream);
  };
  api.Memcpy3DBatchAsync12080 = [](size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                                   unsigned long long flags, CUstream stream) -> CUresult {
    ENTER("cuMemcpy3DBatchAsync");
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return FakeDriver::Get().CopyRows("cuMemcpy3DBatchAsync 12.8", count, ops, failed, stream);
  };
}

void FillKernels(DriverApi& api) {
  api.ModuleLoadData = [](CUmodule* module, const void* image) -> CUresult {
    ENTER("cuModuleLoadData");
    if (image == nullptr) return CUDA_ERROR_INVALID_IMAGE;
    ++FakeDriver::Get().live_modules;
    *module = reinterpret_cast<CUmodule>(uintptr_t{0xD0});
    return CUDA_SUCCESS;
  };
  api.ModuleUnload = [](CUmodule) -> CUresult {
    ENTER("cuModuleUnload");
    --FakeDriver::Get().live_modules;
    return CUDA_SUCCESS;
  };
  api.ModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) -> CUresult {
    ENTER("cuModuleGetFunction");
    for (const char* known : kFunctionNames) {
      if (std::string_view(known) != name) continue;
      *function = reinterpret_cast<CUfunction>(const_cast<char*>(known));
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
  };
  api.FuncSetAttribute = [](CUfunction, CUfunction_attribute, int) -> CUresult {
    ENTER("cuFuncSetAttribute");
    return CUDA_SUCCESS;
  };
  api.LaunchKernel = [](CUfunction function, unsigned grid, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned shared, CUstream stream, void** arguments,
                        void**) -> CUresult {
    ENTER("cuLaunchKernel");
    const std::string kernel = reinterpret_cast<const char*>(function);
    return kernel.find("copy") != std::string::npos
               ? FakeDriver::Get().LaunchCopy(kernel, grid, threads, shared, stream, arguments)
               : FakeDriver::Get().LaunchTool(kernel, grid, stream, arguments);
  };
}

DriverApi AllFunctions() {
  DriverApi api;
  FillDevices(api);
  FillMemory(api);
  FillHostMemory(api);
  FillMappings(api);
  FillGraphs(api);
  FillStreams(api);
  FillEvents(api);
  FillCopies(api);
  FillKernels(api);
  return api;
}

// Finds the functions as cuGetProcAddress does, by the versions of the driver and of the caller.
void* LookUp(const char* name, int version) {
  static const DriverApi all = AllFunctions();
  const std::string_view wanted = name;
#define FIND(member, function) \
  if (wanted == #function) return reinterpret_cast<void*>(all.member);
  const std::string_view missing = FakeDriver::Get().options.missing;
  if (!missing.empty() && wanted.starts_with(missing)) return nullptr;
  KVCAST_DRIVER_FUNCTIONS(FIND)
  KVCAST_OPTIONAL_DRIVER_FUNCTIONS(FIND)
#undef FIND
  const int form = std::min(version, FakeDriver::Get().options.version);
  if (wanted == "cuMemcpyBatchAsync" && form >= 12080) {
    return form >= 13000 ? reinterpret_cast<void*>(all.MemcpyBatchAsync13000)
                         : reinterpret_cast<void*>(all.MemcpyBatchAsync12080);
  }
  if (wanted == "cuMemcpy3DBatchAsync" && form >= 12080) {
    return form >= 13000 ? reinterpret_cast<void*>(all.Memcpy3DBatchAsync13000)
                         : reinterpret_cast<void*>(all.Memcpy3DBatchAsync12080);
  }
  return nullptr;
}

// True if two of the ranges [first, first + second) overlap.
bool AnyOverlap(std::vector<std::pair<uintptr_t, size_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i - 1].first + ranges[i - 1].second > ranges[i].first) return true;
  }
  return false;
}

}  // namespace

FakeDriver::FakeDriver(const FakeOptions& fake_options) : options(fake_options) {
  g_driver = this;
  const Status status = FillDriverApi(&LookUp, api_);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

FakeDriver::~FakeDriver() {
  g_current = nullptr;
  g_driver = nullptr;
  for (Stream* stream : streams) delete stream;
  for (Event* event : events) delete event;
}

FakeDriver& FakeDriver::Get() { return *g_driver; }

CudaDevice FakeDriver::Open() {
  auto device = Device::Open(api_, 0);
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  return std::move(device).value();
}

void FakeDriver::Fault(const std::string& fault) { faults.push_back(fault); }

CUresult FakeDriver::Enter(const char* function, bool needs_context) {
  cpu_time += costs.call;
  const auto it = failures.find(function);
  if (it != failures.end() && --it->second.second == 0) {
    const CUresult result = it->second.first;
    failures.erase(it);
    return result;
  }
  if (needs_context && g_current == nullptr) {
    Fault(std::string(function) + " without a context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return broken;
}

CUresult FakeDriver::Alloc(CUdeviceptr* address, size_t bytes) {
  size_t used = 0;
  for (const auto& [base, memory] : allocations) used += memory.size();
  if (bytes > gpu_bytes - used) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<std::byte> memory(bytes);
  *address = reinterpret_cast<uintptr_t>(memory.data());
  allocations[*address] = std::move(memory);
  return CUDA_SUCCESS;
}

CUresult FakeDriver::Register(void* address, size_t bytes) {
  size_t pinned = 0;
  for (const auto& [base, size] : registrations) pinned += size;
  if (bytes > pinnable_bytes - std::min(pinned, pinnable_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  registrations[reinterpret_cast<uintptr_t>(address)] = bytes;
  return CUDA_SUCCESS;
}

bool FakeDriver::IsCopyable(uintptr_t address, size_t bytes) const {
  const auto holds = [&](uintptr_t base, size_t size) {
    return address >= base && address + bytes <= base + size;
  };
  return std::ranges::any_of(allocations,
                             [&](const auto& a) { return holds(a.first, a.second.size()); }) ||
         std::ranges::any_of(registrations,
                             [&](const auto& r) { return holds(r.first, r.second); });
}

std::byte* FakeDriver::KernelMemory(uintptr_t address, size_t bytes) {
  if (address >= kAlias) {
    address -= kAlias;
    const auto it = registrations.upper_bound(address);
    if (it != registrations.begin() &&
        address + bytes <= std::prev(it)->first + std::prev(it)->second) {
      return reinterpret_cast<std::byte*>(address);
    }
  } else if (allocations.upper_bound(address) != allocations.begin()) {
    const auto it = std::prev(allocations.upper_bound(address));
    if (address + bytes <= it->first + it->second.size()) {
      return reinterpret_cast<std::byte*>(address);
    }
  }
  Fault("a kernel accesses memory that it may not access");
  broken = CUDA_ERROR_ILLEGAL_ADDRESS;
  return nullptr;
}

CUstream FakeDriver::NewStream() {
  ++live_streams;
  auto* const stream = new Stream;
  streams.insert(stream);
  return reinterpret_cast<CUstream>(stream);
}

void FakeDriver::Do(CUstream stream, std::function<void()> work) {
  StreamOf(stream).items.push_back({.run = std::move(work)});
}

CUevent FakeDriver::RecordNewEvent(CUstream stream) {
  test_events_.push_back(std::make_unique<Event>());
  const auto event = reinterpret_cast<CUevent>(test_events_.back().get());
  api_.EventRecord(event, stream);
  return event;
}

bool FakeDriver::IsIdle(CUstream stream) const { return StreamOf(stream).items.empty(); }

// False: the stream is empty, or its first item waits for an event.
bool FakeDriver::Step(Stream& stream) {
  if (stream.items.empty()) return false;
  Item& front = stream.items.front();
  if (front.wait_for != nullptr) {
    if (front.wait_for->reached < front.generation) return false;
    stream.time = std::max(stream.time, front.wait_for->time);
  }
  const Item item = std::move(front);
  stream.items.pop_front();
  stream.time = std::max(stream.time, item.issued) + item.seconds;
  item.run();
  if (item.record != nullptr) {
    item.record->reached = std::max(item.record->reached, item.generation);
    item.record->time = stream.time;
  }
  return true;
}

void FakeDriver::RunAlone(CUstream stream) {
  while (Step(StreamOf(stream))) {
  }
}

void FakeDriver::RunAllBut(CUstream one) {
  for (bool any = true; any;) {
    any = false;
    for (Stream* stream : streams) {
      if (one != nullptr && stream == &StreamOf(one)) continue;
      while (Step(*stream)) any = true;
    }
  }
}

void FakeDriver::RunAll() { RunAllBut(nullptr); }

// Runs only the work that the event needs. False: the event cannot be reached yet.
bool FakeDriver::Reach(Event& event, uint64_t generation) {
  while (event.reached < generation) {
    Stream& stream = *event.stream;
    if (Step(stream)) continue;
    if (stream.items.empty()) return false;
    const Item& front = stream.items.front();
    if (!Reach(*front.wait_for, front.generation)) return false;
  }
  return true;
}

CUresult FakeDriver::SynchronizeEvent(Event& event) {
  if (!Reach(event, event.recorded)) Fault("no work can reach this event");
  cpu_time = std::max(cpu_time, event.time);
  return broken;
}

CUresult FakeDriver::Synchronize(Stream& stream) {
  while (!stream.items.empty()) {
    if (Step(stream)) continue;
    const Item& front = stream.items.front();
    if (!Reach(*front.wait_for, front.generation)) {
      Fault("a stream waits for an event that no work can reach");
      return CUDA_ERROR_UNKNOWN;
    }
  }
  cpu_time = std::max(cpu_time, stream.time);
  return broken;
}

// Calls `copy` when the copies run.
CUresult FakeDriver::EnqueueCopies(const Batch& batch, std::function<size_t()> copy,
                                   double submit_seconds, double seconds, CUstream stream) {
  batches.push_back(batch);
  cpu_time += submit_seconds;
  StreamOf(stream).items.push_back(
      {.run = [copy = std::move(copy)] { copy(); }, .seconds = seconds, .issued = cpu_time});
  return CUDA_SUCCESS;
}

CUresult FakeDriver::CopyBatch(const char* call, CUdeviceptr* dsts, CUdeviceptr* srcs,
                               size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
                               size_t* starts, size_t num_attributes, size_t* failed,
                               CUstream stream) {
  if (stream == nullptr || count == 0 || num_attributes != 1 || starts[0] != 0 ||
      attributes[0].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<std::pair<uintptr_t, size_t>> written;
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    if (sizes[i] == 0 || !IsCopyable(dsts[i], sizes[i]) || !IsCopyable(srcs[i], sizes[i])) {
      if (failed != nullptr) *failed = i;
      return CUDA_ERROR_INVALID_VALUE;
    }
    written.emplace_back(dsts[i], sizes[i]);
    total += sizes[i];
  }
  if (AnyOverlap(std::move(written))) Fault("copies of a batch write the same bytes");
  const auto copy = [=, this]() -> size_t {
    for (size_t i = 0; i < count && !loses_batches; ++i) {
      if (!IsCopyable(dsts[i], sizes[i]) || !IsCopyable(srcs[i], sizes[i])) {
        Fault("descriptors changed before the copies ran");
        return 0;
      }
      std::memcpy(reinterpret_cast<void*>(dsts[i]), reinterpret_cast<void*>(srcs[i]), sizes[i]);
    }
    return total;
  };
  return EnqueueCopies({call, count, attributes[0].srcAccessOrder, attributes[0].flags}, copy,
                       static_cast<double>(count) * costs.copy,
                       static_cast<double>(total) / costs.link, stream);
}

CUresult FakeDriver::CopyRows(const char* call, size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
                              size_t* failed, CUstream stream) {
  if (stream == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  size_t total = 0;
  size_t rows = 0;
  const auto span = [](const CUmemcpy3DOperand& operand, const CUextent3D& extent) {
    return (extent.height - 1) * operand.op.ptr.rowLength + extent.width;
  };
  for (size_t i = 0; i < count; ++i) {
    const CUDA_MEMCPY3D_BATCH_OP& op = ops[i];
    if (op.extent.width == 0 || op.extent.height == 0 || op.extent.depth != 1 ||
        op.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID ||
        op.src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
        op.dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
        op.src.op.ptr.rowLength < op.extent.width || op.dst.op.ptr.rowLength < op.extent.width ||
        !IsCopyable(op.src.op.ptr.ptr, span(op.src, op.extent)) ||
        !IsCopyable(op.dst.op.ptr.ptr, span(op.dst, op.extent))) {
      if (failed != nullptr) *failed = i;
      return CUDA_ERROR_INVALID_VALUE;
    }
    total += op.extent.width * op.extent.height;
    rows += op.extent.height;
  }
  const auto copy = [=]() -> size_t {
    for (size_t i = 0; i < count; ++i) {
      const CUDA_MEMCPY3D_BATCH_OP& op = ops[i];
      for (size_t row = 0; row < op.extent.height; ++row) {
        std::memcpy(reinterpret_cast<void*>(op.dst.op.ptr.ptr + row * op.dst.op.ptr.rowLength),
                    reinterpret_cast<void*>(op.src.op.ptr.ptr + row * op.src.op.ptr.rowLength),
                    op.extent.width);
      }
    }
    return total;
  };
  return EnqueueCopies(
      {call, count, ops[0].srcAccessOrder, ops[0].flags}, copy,
      static_cast<double>(count) * costs.copy,
      static_cast<double>(total) / costs.link + static_cast<double>(rows) * costs.row, stream);
}

CUresult FakeDriver::CopyOne(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  if (!IsCopyable(dst, bytes) || !IsCopyable(src, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto copy = [=]() -> size_t {
    std::memcpy(reinterpret_cast<void*>(dst), reinterpret_cast<void*>(src), bytes);
    return bytes;
  };
  return EnqueueCopies({"cuMemcpyAsync", 1, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 0}, copy, 0,
                       static_cast<double>(bytes) / costs.link, stream);
}

CUresult FakeDriver::LaunchCopy(const std::string& kernel, unsigned blocks, unsigned threads,
                                unsigned shared, CUstream stream, void** arguments) {
  const auto address = [&](int i) { return *static_cast<CUdeviceptr*>(arguments[i]); };
  Launch launch{.kernel = kernel, .blocks = blocks, .count = *static_cast<uint32_t*>(arguments[3])};
  if (kernel == kRingKernel) {
    launch.stage_bytes = *static_cast<uint32_t*>(arguments[4]);
    launch.stages = *static_cast<uint32_t*>(arguments[5]);
    if (threads != kRingThreads || shared != launch.stage_bytes * launch.stages ||
        shared > kRingBytes || launch.stages < kRingMinStages || launch.stages > kRingStages) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  } else if (kernel == kWarpKernel && (threads != kWarpThreads || shared != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  launches.push_back(launch);
  const auto* const src =
      reinterpret_cast<const uint64_t*>(KernelMemory(address(0), launch.count * sizeof(uint64_t)));
  const auto* const dst =
      reinterpret_cast<const uint64_t*>(KernelMemory(address(1), launch.count * sizeof(uint64_t)));
  const auto* const bytes =
      reinterpret_cast<const uint32_t*>(KernelMemory(address(2), launch.count * sizeof(uint32_t)));
  if (src == nullptr || dst == nullptr || bytes == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  size_t total = 0;
  bool link = false;
  for (uint32_t i = 0; i < launch.count; ++i) {
    total += bytes[i];
    link = link || src[i] >= kAlias || dst[i] >= kAlias;
  }
  const double rate = link ? std::min(costs.link, blocks * costs.block) : costs.device;
  const double seconds =
      costs.launch + std::max(static_cast<double>(total) / rate, launch.count * costs.piece);
  StreamOf(stream).items.push_back({.run = [=, this] { RunPieces(launch, src, dst, bytes); },
                                    .seconds = seconds,
                                    .issued = cpu_time});
  return CUDA_SUCCESS;
}

CUresult FakeDriver::LaunchTool(const std::string& kernel, unsigned blocks, CUstream stream,
                                void** arguments) {
  constexpr double kSeconds = 20e-6;
  std::function<void()> run = [] {};
  if (kernel == "tool_fill" || kernel == "tool_check") {
    const auto value = [&](int i) { return *static_cast<uint64_t*>(arguments[i]); };
    const uint64_t bytes = value(2);
    const uint64_t wrong_flags = kernel == "tool_check" ? value(3) : 0;
    const uint64_t places = value(0);
    const uint64_t words = value(1);
    run = [=, this] { FillOrCheckBlocks(places, words, bytes, wrong_flags, blocks); };
  }
  StreamOf(stream).items.push_back(
      {.run = std::move(run), .seconds = kSeconds, .issued = cpu_time});
  return CUDA_SUCCESS;
}

// `wrong_flags` == 0: fills the blocks. Otherwise checks them, and sets the flag of each wrong
// block.
void FakeDriver::FillOrCheckBlocks(uint64_t places, uint64_t words, uint64_t bytes,
                                   uint64_t wrong_flags, unsigned blocks) {
  const size_t list_bytes = blocks * sizeof(uint64_t);
  const auto* const place = reinterpret_cast<const uint64_t*>(KernelMemory(places, list_bytes));
  const auto* const word = reinterpret_cast<const uint64_t*>(KernelMemory(words, list_bytes));
  if (place == nullptr || word == nullptr) return;
  for (unsigned i = 0; i < blocks; ++i) {
    std::byte* const block = KernelMemory(place[i], bytes);
    if (block == nullptr) return;
    for (uint64_t at = 0; at < bytes; at += 8) {
      const uint64_t want = word[i] + at;
      if (wrong_flags == 0) {
        std::memcpy(block + at, &want, 8);
      } else if (std::memcmp(block + at, &want, 8) != 0) {
        const uint32_t one = 1;
        std::memcpy(KernelMemory(wrong_flags + i * sizeof(one), sizeof(one)), &one, sizeof(one));
      }
    }
  }
}

// The kernel reads the table when it runs, not at the launch.
void FakeDriver::RunPieces(const Launch& launch, const uint64_t* src, const uint64_t* dst,
                           const uint32_t* bytes) {
  for (uint32_t i = 0; i < launch.count; ++i) {
    if (launch.kernel == kRingKernel &&
        ((src[i] | dst[i] | bytes[i]) % 16 != 0 || bytes[i] > launch.stage_bytes)) {
      Fault("a bulk copy is not aligned, or too large");
      return;
    }
    const std::byte* const from = KernelMemory(src[i], bytes[i]);
    std::byte* const to = KernelMemory(dst[i], bytes[i]);
    if (from == nullptr || to == nullptr) return;
    std::memcpy(to, from, bytes[i]);
  }
}

}  // namespace kvcast::cuda::testing

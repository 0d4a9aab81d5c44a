// FakeDriver: simulates a CUDA driver without a GPU. It fills DriverApi, the function table of a
// real driver.
//
// A stream runs its work as late as a GPU may: when a caller waits for the work, when a caller
// queries an event (see runs_by_itself), or when a test calls a Run function. The stream copies
// from the sources, tables and descriptors as they are at that time. GPU memory is plain memory.
// For registered memory, a kernel uses another address than the CPU. The fake checks the arguments
// of the calls, and returns the error that a real driver returns. It records a fault for each
// detected error that a real driver may not report, for example descriptors that change before the
// copies run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/driver_api.h"

namespace kvcast::cuda::testing {

struct FakeOptions {
  int version = 13000;
  int compute_capability = 90;
  int numa_node = -1;
  bool maps_host_memory = true;
  const char* missing = "";  // functions whose names begin with this text are not available
};

// `link`, `block` and `device` are in bytes per second. All other costs are in seconds.
struct FakeCosts {
  double call = 2e-6;
  double copy = 0.5e-6;  // per descriptor, on the CPU
  double row = 0.1e-6;   // per row of a descriptor with rows, on the copy engine
  double link = 50e9;
  double launch = 5e-6;
  double piece = 0.01e-6;
  double block = 12e9;     // rate of a thread block over the link
  double device = 1000e9;  // rate of a kernel within the GPU
};

class FakeDriver {
 public:
  struct Batch {
    std::string call;  // "cuMemcpyBatchAsync 13.0", "cuMemcpy3DBatchAsync 12.8", "cuMemcpyAsync"
    size_t count = 0;
    int order = 0;
    unsigned flags = 0;
  };
  struct Launch {
    std::string kernel;
    unsigned blocks = 0;
    uint32_t count = 0;
    uint32_t stage_bytes = 0;
    uint32_t stages = 0;
  };

  explicit FakeDriver(const FakeOptions& options = {});
  ~FakeDriver();

  const DriverApi& api() const { return api_; }
  CudaDevice Open();

  // The function's `nth` call, counted from now, returns `result` and has no effect.
  void FailCall(const std::string& function, CUresult result, int nth = 1) {
    failures[function] = {result, nth};
  }
  // From this call on, every driver function returns `result`, except the queries of the driver and
  // of the device, cuInit, and the functions of the primary context.
  void BreakDown(CUresult result) { broken = result; }

  CUstream NewStream();
  // Adds other work of the GPU to a stream.
  void Do(CUstream stream, std::function<void()> work);
  CUevent RecordNewEvent(CUstream stream);
  // Runs all work that can run.
  void RunAll();
  // Runs the work of this stream that needs no progress of other streams.
  void RunAlone(CUstream stream);
  // Runs the work of all other streams that needs no progress of this stream.
  void RunAllBut(CUstream stream);
  bool IsIdle(CUstream stream) const;

  std::map<std::string, std::pair<CUresult, int>> failures;
  CUresult broken = CUDA_SUCCESS;
  // True: EventQuery runs all work first. False: EventQuery runs no work.
  bool runs_by_itself = true;
  // True: cuMemcpyBatchAsync succeeds, but copies no bytes.
  bool loses_batches = false;
  size_t gpu_bytes = size_t{1} << 32;
  size_t pinnable_bytes = SIZE_MAX;
  FakeCosts costs;

  std::vector<Batch> batches;
  std::vector<Launch> launches;
  std::vector<std::string> faults;
  int live_streams = 0;
  int live_events = 0;
  int live_modules = 0;
  int live_contexts = 0;
  std::map<uintptr_t, size_t> registrations;
  std::map<uintptr_t, std::vector<std::byte>> allocations;
  int live_graphs = 0;                                        // graphs and executable graphs
  std::map<uintptr_t, std::vector<std::byte>> host_memory;    // of cuMemHostAlloc
  std::map<uintptr_t, std::vector<std::byte>> reservations;   // address ranges
  std::map<CUmemGenericAllocationHandle, size_t> host_pages;  // of cuMemCreate
  std::map<uintptr_t, size_t> mappings;                       // addresses of mapped host_pages

  static constexpr size_t kHostPage = size_t{2} << 20;
  static constexpr uintptr_t kAlias = uintptr_t{1} << 50;

  // The members below implement the functions of the table.
  struct Stream;
  struct Event {
    uint64_t recorded = 0;  // number of records
    uint64_t reached = 0;   // number of the latest record that its stream has reached
    double time = 0;        // in seconds
    bool timing = false;
    Stream* stream = nullptr;  // of the latest record
  };
  struct Item {
    std::function<void()> run;
    double seconds = 0;
    double issued = 0;  // cpu_time at the call, in seconds
    Event* wait_for = nullptr;
    uint64_t generation = 0;
    Event* record = nullptr;
  };
  struct Stream {
    std::deque<Item> items;
    double time = 0;
  };

  static FakeDriver& Get();
  CUresult Enter(const char* function, bool needs_context = true);
  CUresult Alloc(CUdeviceptr* address, size_t bytes);
  CUresult Register(void* address, size_t bytes);
  CUresult SetAccess(uintptr_t address, size_t bytes, const CUmemAccessDesc* access, size_t count);
  // One memcpy node of a graph.
  struct Node {
    CUdeviceptr dst = 0;
    CUdeviceptr src = 0;
    size_t bytes = 0;
  };
  using Graph = std::vector<Node>;
  CUresult SetNode(const CUDA_MEMCPY3D& copy, CUcontext context, Node& node);
  CUresult LaunchGraph(const Graph& graph, CUstream stream);
  CUresult EnqueueCopies(const Batch& batch, std::function<size_t()> copy, double submit_seconds,
                         double seconds, CUstream stream);
  CUresult CopyBatch(const char* call, CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                     size_t count, CUmemcpyAttributes* attributes, size_t* starts,
                     size_t num_attributes, size_t* failed, CUstream stream);
  CUresult CopyRows(const char* call, size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                    CUstream stream);
  CUresult CopyOne(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
  CUresult LaunchCopy(const std::string& kernel, unsigned blocks, unsigned threads, unsigned shared,
                      CUstream stream, void** arguments);
  CUresult LaunchTool(const std::string& kernel, unsigned blocks, CUstream stream,
                      void** arguments);
  void FillOrCheckBlocks(uint64_t places, uint64_t words, uint64_t bytes, uint64_t wrong_flags,
                         unsigned blocks);
  void RunPieces(const Launch& launch, const uint64_t* src, const uint64_t* dst,
                 const uint32_t* bytes);
  CUresult Synchronize(Stream& stream);
  CUresult SynchronizeEvent(Event& event);
  // IsCopyable is true if a copy engine may access the memory. KernelMemory returns nullptr if a
  // kernel may not access the memory.
  bool IsCopyable(uintptr_t address, size_t bytes) const;
  std::byte* KernelMemory(uintptr_t address, size_t bytes);
  void Fault(const std::string& fault);

  const FakeOptions options;
  double cpu_time = 0;
  std::set<Stream*> streams;
  std::set<Event*> events;     // after BreakDown, EventDestroy fails, so the event stays
  std::recursive_mutex calls;  // calls from any thread run one at a time

 private:
  bool Step(Stream& stream);
  bool Reach(Event& event, uint64_t generation);

  DriverApi api_;
  std::vector<std::unique_ptr<Event>> test_events_;
};

}  // namespace kvcast::cuda::testing

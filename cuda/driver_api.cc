// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver_api.h"

#include <dlfcn.h>

#include <string>

namespace kvcast::cuda {
namespace {

// Each function is looked up in the form that it has in CUDA 12.8, the oldest toolkit that can
// build this code.
constexpr int kFormVersion = 12080;

Status Unavailable(std::string text) { return {StatusCode::kUnavailable, std::move(text)}; }

decltype(&::cuGetProcAddress) g_get_proc_address = nullptr;

void* LookUp(const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult query_result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult result = g_get_proc_address(name, &function, version,
                                             CU_GET_PROC_ADDRESS_LEGACY_STREAM, &query_result);
  return result == CUDA_SUCCESS && query_result == CU_GET_PROC_ADDRESS_SUCCESS ? function : nullptr;
}

Status Load(DriverApi& api) {
  // The library is never closed, because the driver has its own threads.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable("no CUDA driver: cannot load libcuda.so.1");
  g_get_proc_address =
      reinterpret_cast<decltype(g_get_proc_address)>(dlsym(library, "cuGetProcAddress_v2"));
  if (g_get_proc_address == nullptr) return Unavailable("the CUDA driver is older than 12.0");
  if (Status status = FillDriverApi(&LookUp, api); !status.ok()) return status;
  return ToStatus(api, api.Init(0), "cuInit");
}

}  // namespace

Status FillDriverApi(DriverLookup lookup, DriverApi& api) {
#define KVCAST_FILL(member, function)                                                   \
  api.member = reinterpret_cast<decltype(api.member)>(lookup(#function, kFormVersion)); \
  if (api.member == nullptr) return Unavailable("the CUDA driver has no " #function);
  KVCAST_DRIVER_FUNCTIONS(KVCAST_FILL)
#undef KVCAST_FILL
#define KVCAST_FILL(member, function) \
  api.member = reinterpret_cast<decltype(api.member)>(lookup(#function, kFormVersion));
  KVCAST_OPTIONAL_DRIVER_FUNCTIONS(KVCAST_FILL)
#undef KVCAST_FILL
  int version = 0;
  if (api.DriverGetVersion(&version) != CUDA_SUCCESS) version = 0;
  // For a version that is newer than the driver, the lookup returns the newest form that the driver
  // has. The version is therefore checked first.
  if (version >= 13000) {
    api.MemcpyBatchAsync13000 =
        reinterpret_cast<MemcpyBatch13000>(lookup("cuMemcpyBatchAsync", 13000));
    api.Memcpy3DBatchAsync13000 =
        reinterpret_cast<Memcpy3DBatch13000>(lookup("cuMemcpy3DBatchAsync", 13000));
  }
  if (version >= 12080) {
    api.MemcpyBatchAsync12080 =
        reinterpret_cast<MemcpyBatch12080>(lookup("cuMemcpyBatchAsync", 12080));
    api.Memcpy3DBatchAsync12080 =
        reinterpret_cast<Memcpy3DBatch12080>(lookup("cuMemcpy3DBatchAsync", 12080));
  }
  return {};
}

Result<const DriverApi*> LoadDriver() {
  static DriverApi api;
  static const Status status = Load(api);
  if (!status.ok()) return status;
  return &api;
}

Status ToStatus(const DriverApi& api, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  if (api.GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  const auto code =
      result == CUDA_ERROR_OUT_OF_MEMORY ? StatusCode::kExhausted : StatusCode::kUnavailable;
  return {code, std::string(call) + ": " + name + " (" + std::to_string(result) + ")"};
}

}  // namespace kvcast::cuda

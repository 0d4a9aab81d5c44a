// SPDX-License-Identifier: Apache-2.0
#include "kvcast/cuda/cuda_copy_backend.h"

namespace kvcast {

std::string_view CudaCopyPathName(CudaCopyPath path) {
  switch (path) {
    case CudaCopyPath::kCopyEngine:
      return "copy-engine";
    case CudaCopyPath::kKernel:
      return "kernel";
    case CudaCopyPath::kStaged:
      return "staged";
  }
  return "";
}

}  // namespace kvcast

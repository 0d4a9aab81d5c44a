// The extension module kvcast._kvcast.
// SPDX-License-Identifier: Apache-2.0
#include "python/src/bindings.h"

PYBIND11_MODULE(_kvcast, module) {
  using namespace kvcast::python;
  module.doc() = "The C++ part of the package kvcast. Use the package kvcast instead.";
  module.attr("__version__") = KVCAST_VERSION;
  AddErrors(module);
  AddHashes(module);
  AddEvents(module);
  AddWire(module);
  AddOverlapScores(module);
  AddIndexer(module);
  AddPublisher(module);
  AddSubscriber(module);
  AddSelector(module);
  AddRouter(module);
  AddSimulate(module);
  AddOffloadManager(module);
  AddEvictionOrder(module);
  AddBlockCopier(module);
  AddOffloadScheduler(module);
}

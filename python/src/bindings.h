// The parts of the extension module. Each function adds the classes and functions of one concept.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace kvcast::python {

void AddErrors(pybind11::module_& module);
void AddHashes(pybind11::module_& module);
void AddEvents(pybind11::module_& module);
void AddWire(pybind11::module_& module);
void AddOverlapScores(pybind11::module_& module);
void AddIndexer(pybind11::module_& module);
void AddPublisher(pybind11::module_& module);
void AddSubscriber(pybind11::module_& module);
void AddSelector(pybind11::module_& module);
void AddRouter(pybind11::module_& module);
void AddSimulate(pybind11::module_& module);
void AddOffloadManager(pybind11::module_& module);
void AddEvictionOrder(pybind11::module_& module);
void AddBlockCopier(pybind11::module_& module);
void AddOffloadScheduler(pybind11::module_& module);

}  // namespace kvcast::python

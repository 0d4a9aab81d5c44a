// SPDX-License-Identifier: Apache-2.0
#include "python/src/errors.h"

#include <array>

#include "python/src/bindings.h"

namespace py = pybind11;

namespace kvcast::python {
namespace {

struct ErrorClass {
  StatusCode code;
  const char* name;
  PyObject** base;  // the second base class
  const char* doc;
};

// The class of each error code. ClosedError has no code of its own.
const std::array kErrorClasses = {
    ErrorClass{StatusCode::kInvalidArgument, "InvalidArgumentError", &PyExc_ValueError,
               "The value of an argument is invalid. It is also a ValueError."},
    ErrorClass{StatusCode::kMalformed, "MalformedError", &PyExc_ValueError,
               "Bytes do not follow their format. It is also a ValueError."},
    ErrorClass{StatusCode::kLimit, "LimitError", &PyExc_ValueError,
               "The input exceeds a limit. It is also a ValueError."},
    ErrorClass{StatusCode::kNotFound, "NotFoundError", &PyExc_LookupError,
               "An entry or a file does not exist. It is also a LookupError."},
    ErrorClass{StatusCode::kFailedPrecondition, "StateError", &PyExc_RuntimeError,
               "The call is not possible in the present state. It is also a RuntimeError."},
    ErrorClass{StatusCode::kExhausted, "ExhaustedError", &PyExc_RuntimeError,
               "No block, memory or space is free. It is also a RuntimeError."},
    ErrorClass{StatusCode::kUnavailable, "UnavailableError", &PyExc_OSError,
               "A socket, an address or a file cannot be used. It is also an OSError."},
    ErrorClass{StatusCode::kInternal, "InternalError", &PyExc_RuntimeError,
               "A bug in kvcast. It is also a RuntimeError."},
};

// The classes live as long as the process: an exception may be raised at any time.
std::array<PyObject*, kErrorClasses.size()> classes;
PyObject* closed_error = nullptr;

PyObject* MakeClass(py::module_& module, const char* name, const char* doc, PyObject* first,
                    PyObject* second) {
  const std::string full = std::string("kvcast.") + name;
  const py::tuple bases = second == nullptr ? py::make_tuple(py::handle(first))
                                            : py::make_tuple(py::handle(first), py::handle(second));
  PyObject* const made = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr);
  if (made == nullptr) throw py::error_already_set();
  module.attr(name) = py::handle(made);
  return made;
}

[[noreturn]] void Raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw py::error_already_set();
}

PyObject* ClassOf(StatusCode code) {
  for (size_t i = 0; i < kErrorClasses.size(); ++i) {
    if (kErrorClasses[i].code == code) return classes[i];
  }
  return PyExc_RuntimeError;
}

}  // namespace

void Throw(const Status& status) { Raise(ClassOf(status.code()), status.message()); }
void ThrowType(const std::string& message) { Raise(PyExc_TypeError, message); }
void ThrowInvalid(const std::string& message) {
  Raise(ClassOf(StatusCode::kInvalidArgument), message);
}
void ThrowClosed(const char* class_name) {
  Raise(closed_error, std::string(class_name) + " is closed");
}

void AddErrors(py::module_& module) {
  PyObject* const base = MakeClass(module, "KvcastError", "Base class of the errors of kvcast.",
                                   PyExc_Exception, nullptr);
  for (size_t i = 0; i < kErrorClasses.size(); ++i) {
    const ErrorClass& error = kErrorClasses[i];
    classes[i] = MakeClass(module, error.name, error.doc, base, *error.base);
  }
  closed_error = MakeClass(module, "ClosedError", "The object was closed. It is also a StateError.",
                           ClassOf(StatusCode::kFailedPrecondition), nullptr);
}

}  // namespace kvcast::python

# CUDA is optional at build time and at run time. This only finds the toolkit and says so.
# Not by find_package(CUDAToolkit): CMake 3.25's module fails on CUDA 13, which has no nvToolsExt.
set(KVCAST_HAVE_CUDA OFF)
set(KVCAST_CUDA_MINIMUM 12.8)
if(NOT KVCAST_CUDA STREQUAL "OFF" AND NOT KVCAST_FUZZ)
  find_program(KVCAST_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDAToolkit_ROOT PATHS /usr/local/cuda
               PATH_SUFFIXES bin)
  if(KVCAST_NVCC)
    execute_process(COMMAND ${KVCAST_NVCC} --version OUTPUT_VARIABLE nvcc_text ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" nvcc_release "${nvcc_text}")
    set(KVCAST_CUDA_VERSION ${CMAKE_MATCH_1})
    if(nvcc_release AND KVCAST_CUDA_VERSION VERSION_GREATER_EQUAL KVCAST_CUDA_MINIMUM)
      set(KVCAST_HAVE_CUDA ON)
    endif()
  endif()
  if(KVCAST_CUDA STREQUAL "ON" AND NOT KVCAST_HAVE_CUDA)
    message(FATAL_ERROR "KVCAST_CUDA=ON, but no CUDA toolkit >= ${KVCAST_CUDA_MINIMUM} was found")
  endif()
endif()

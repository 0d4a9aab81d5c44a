# CUDA is optional at build time and at run time. The build uses cuda.h and nvcc of the toolkit.
# Programs link no part of the toolkit, and search for the CUDA driver at run time.
# find_package(CUDAToolkit) is not used: CMake 3.25's module fails on CUDA 13, which has no nvToolsExt.
set(KVCAST_HAVE_CUDA OFF)
set(KVCAST_CUDA_MINIMUM 12.8)
# The folder of `scripts/setup --cuda`. It contains installed.txt only if all packages are installed.
set(cuda_env $ENV{KVCAST_CUDA_ENV})
if(NOT cuda_env)
  set(cuda_env $ENV{HOME}/.cache/kvcast/cuda)
endif()
set(cuda_env_roots)
if(EXISTS ${cuda_env}/installed.txt)
  file(GLOB cuda_env_roots ${cuda_env}/lib/python3*/site-packages/nvidia/cu*)
endif()
if(NOT KVCAST_CUDA STREQUAL "OFF" AND NOT KVCAST_FUZZ)
  find_program(KVCAST_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDAToolkit_ROOT ${cuda_env_roots} PATHS /usr/local/cuda
               PATH_SUFFIXES bin)
  if(KVCAST_NVCC)
    execute_process(COMMAND ${KVCAST_NVCC} --version OUTPUT_VARIABLE nvcc_text ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" nvcc_release "${nvcc_text}")
    set(KVCAST_CUDA_VERSION ${CMAKE_MATCH_1})
    if(nvcc_release AND KVCAST_CUDA_VERSION VERSION_GREATER_EQUAL KVCAST_CUDA_MINIMUM)
      get_filename_component(cuda_root ${KVCAST_NVCC} REALPATH)
      get_filename_component(cuda_root ${cuda_root} DIRECTORY)
      find_path(KVCAST_CUDA_INCLUDE cuda.h HINTS ${cuda_root}/../include
                PATH_SUFFIXES ../targets/${CMAKE_SYSTEM_PROCESSOR}-linux/include)
      if(KVCAST_CUDA_INCLUDE)
        set(KVCAST_HAVE_CUDA ON)
      endif()
    endif()
  endif()
  if(KVCAST_CUDA STREQUAL "ON" AND NOT KVCAST_HAVE_CUDA)
    message(FATAL_ERROR "KVCAST_CUDA=ON, but no CUDA toolkit >= ${KVCAST_CUDA_MINIMUM} was found")
  endif()
endif()

# kvcast_cuda_kernels(TARGET FILE.cu NAME): compiles kernels into the array NAME of a target.
# It uses a custom command. CMake's CUDA language would link the toolkit's runtime.
function(kvcast_cuda_kernels target file name)
  get_filename_component(stem ${file} NAME_WE)
  set(input ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(binary ${CMAKE_CURRENT_BINARY_DIR}/${stem}.fatbin)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${stem}_image.cc)
  add_custom_command(OUTPUT ${output}
    COMMAND ${KVCAST_NVCC} -fatbin -std=c++17 -O3 --Werror all-warnings
            -gencode arch=compute_80,code=sm_80
            -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
            -o ${binary} ${input}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${binary} -DOUTPUT=${output} -DNAME=${name}
            -P ${PROJECT_SOURCE_DIR}/cmake/KvcastEmbed.cmake
    DEPENDS ${input} ${PROJECT_SOURCE_DIR}/cmake/KvcastEmbed.cmake
    COMMENT "Compiling ${file} for sm_80 and sm_90" VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

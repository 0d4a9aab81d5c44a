# kvcast_library(NAME SOURCES... DEPENDS...): one static library per folder, alias kvcast::NAME.
# DEPENDS are linked publicly only if they are kvcast libraries; third-party ones stay private.
function(kvcast_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(kvcast_${name} STATIC ${arg_SOURCES})
  add_library(kvcast::${name} ALIAS kvcast_${name})
  set_target_properties(kvcast_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(kvcast_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(kvcast_${name} PUBLIC cxx_std_20)
  target_link_libraries(kvcast_${name} PUBLIC ${arg_DEPENDS} PRIVATE kvcast_flags ${arg_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY KVCAST_LIBRARIES kvcast_${name})
endfunction()

# kvcast_executable(NAME SOURCES... LIBRARIES...): a program in bin/.
function(kvcast_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE kvcast_flags ${arg_LIBRARIES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# Warnings and sanitizers of our own targets; never forced on those who add_subdirectory us.
add_library(kvcast_flags INTERFACE)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(kvcast_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wno-missing-field-initializers>)
  # Warnings are errors where developers build. A release build must not fail because another release
  # of a compiler has another warning.
  target_compile_options(kvcast_flags INTERFACE $<$<NOT:$<CONFIG:Release>>:-Werror>)
  # At -O3, g++ 12 reports overlapping copies inside std::string, members of an empty std::optional as
  # uninitialized, and pointers with an offset that are freed, where there are none.
  target_compile_options(kvcast_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  target_compile_options(kvcast_flags INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-maybe-uninitialized;-Wno-free-nonheap-object>)
  # A .cc file is not the main file of a unity build: its Impl may still have members of its own.
  if(CMAKE_UNITY_BUILD)
    target_compile_options(kvcast_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Headers of libstdc++ 12 use functions that they deprecate; clang warns of it.
    target_compile_options(kvcast_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety;-Wno-deprecated-declarations>)
  endif()
endif()
if(KVCAST_SANITIZE)
  add_compile_options(-fsanitize=${KVCAST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVCAST_SANITIZE})
  # ASan reports the same faults as these four checks, and the fuzz targets keep the checks. They
  # cost a third of the build.
  if(KVCAST_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
  endif()
  # g++ 12 warns about its own sanitizer instrumentation of std::optional and std::variant.
  target_compile_options(kvcast_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-tsan>)
endif()

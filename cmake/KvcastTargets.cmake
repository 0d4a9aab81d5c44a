# kvcast_library(NAME SOURCES... DEPENDS... PRIVATE...): adds a static library with the alias kvcast::NAME.
# The caller passes kvcast libraries as DEPENDS, which are linked publicly, and third-party libraries as
# PRIVATE.
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
  kvcast_quick(kvcast_${name})
endfunction()

# kvcast_executable(NAME SOURCES... LIBRARIES...): adds a program in bin/.
function(kvcast_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE kvcast_flags ${arg_LIBRARIES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# Warnings of our own targets. A project that adds kvcast by add_subdirectory does not get them.
add_library(kvcast_flags INTERFACE)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(kvcast_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wno-missing-field-initializers>)
  # Warnings are errors in all builds except release builds. A release build must not fail because a
  # newer compiler has a new warning.
  target_compile_options(kvcast_flags INTERFACE $<$<NOT:$<CONFIG:Release>>:-Werror>)
  # At -O3, or with assertions of the C++ library, g++ 12 gives three kinds of false warnings: overlapping
  # copies inside std::string, uninitialized members of an empty std::optional, and frees of pointers with an
  # offset.
  target_compile_options(kvcast_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  target_compile_options(kvcast_flags INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<OR:$<CONFIG:Release>,$<BOOL:${KVCAST_HARDEN}>>>:-Wno-maybe-uninitialized>)
  target_compile_options(kvcast_flags INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-free-nonheap-object>)
  # In a unity build, a .cc file is not the main file. g++ then warns if a class has members of types from
  # an anonymous namespace of that file.
  if(CMAKE_UNITY_BUILD)
    target_compile_options(kvcast_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Headers of libstdc++ 12 use functions that they declare as deprecated. clang warns about each use.
    target_compile_options(kvcast_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety;-Wno-deprecated-declarations>)
  endif()
endif()
# Checks at run time: overflows of stack buffers, of the buffers of C functions, and of std::vector and
# std::span. An overflow ends the program, before an attacker can use it. The loader makes its tables
# read-only. Sanitizers make the same checks.
if(KVCAST_HARDEN AND NOT KVCAST_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>)
  # _FORTIFY_SOURCE, the check of the C library, has an effect only in optimised code.
  add_compile_options($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:>>>:-U_FORTIFY_SOURCE>
                      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:>>>:-D_FORTIFY_SOURCE=2>)
  add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
  add_link_options(-Wl,-z,relro,-z,now)
endif()
if(KVCAST_SANITIZE)
  add_compile_options(-fsanitize=${KVCAST_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVCAST_SANITIZE})
  # These four checks are off, because they take a third of the build time. AddressSanitizer reports the same
  # faults, and the fuzz targets have the checks.
  if(KVCAST_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
  endif()
  # With a sanitizer, g++ 12 gives false warnings about std::optional and std::variant.
  target_compile_options(kvcast_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-tsan>)
endif()

# kvcast_embed(TARGET SYMBOL FILE): adds the file's bytes to the target, as
# `extern const char SYMBOL_begin[], SYMBOL_end[]` with C linkage.
function(kvcast_embed target symbol file)
  get_filename_component(file "${file}" ABSOLUTE)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT [=[
asm(".section .rodata\n"
    ".global @symbol@_begin\n.global @symbol@_end\n"
    "@symbol@_begin:\n.incbin \"@file@\"\n@symbol@_end:\n.byte 0\n"
    ".previous\n");
]=] @ONLY)
  # In a unity build, the file would lose its OBJECT_DEPENDS.
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file} SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()

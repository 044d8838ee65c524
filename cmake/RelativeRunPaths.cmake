# cmake -DFOLDER=folder -P RelativeRunPaths.cmake: of run paths in bin and lib of the folder, only what is relative to
# each file stays. The rest is where this machine has things.
file(GLOB_RECURSE packed ${FOLDER}/bin/* ${FOLDER}/lib/*.so*)
foreach(file ${packed})
  set(run_path "")
  file(READ_ELF ${file} RPATH run_path RUNPATH run_path)
  set(relative ${run_path})
  list(FILTER relative INCLUDE REGEX "^[$]ORIGIN")
  list(JOIN run_path ":" run_path)
  list(JOIN relative ":" relative)
  file(RPATH_CHANGE FILE ${file} OLD_RPATH "${run_path}" NEW_RPATH "${relative}")
endforeach()

# Target `program`: the binary and the plugins, without the tests (`make build`).
# Component `dist`: what `make dist` packs; tools/dist adds the launcher and the system's libraries.
# Run paths are relative to each file, and libtorch is found by the launcher.
add_custom_target(program)
foreach(target ballast ballast_cuda ballast_mpi)
  if(TARGET ${target})
    add_dependencies(program ${target})
  endif()
endforeach()

function(ballast_install RUN_PATH DESTINATION)
  foreach(target ${ARGN})
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES INSTALL_RPATH ${RUN_PATH})
      install(TARGETS ${target} COMPONENT dist RUNTIME DESTINATION ${DESTINATION} LIBRARY DESTINATION ${DESTINATION})
    endif()
  endforeach()
endfunction()

get_property(rooms GLOBAL PROPERTY BALLAST_ROOMS)
list(TRANSFORM rooms APPEND _tests OUTPUT_VARIABLE test_programs)
ballast_install("$ORIGIN/../lib" bin ballast)
ballast_install("$ORIGIN" lib ballast_kernels ballast_comm ballast_cuda ballast_mpi)
ballast_install("$ORIGIN/../../lib" bin/tests ${test_programs} workers_tests training_workers_tests)
install(DIRECTORY configs benchmarks COMPONENT dist DESTINATION . PATTERN "__pycache__" EXCLUDE PATTERN "results" EXCLUDE)
install(PROGRAMS tools/gpu_check COMPONENT dist DESTINATION .)
install(FILES LICENSE COMPONENT dist DESTINATION .)

# Target `program`: the programs and the plugins, without the tests (`make build`).
# `cmake --install` makes a prefix that can be moved: its run paths are relative to each file, and then name the libtorch
# that it was built with. Its components:
#   program      bin, the shared libraries and plugins in lib, configs, man pages
#   development  headers, static libraries, the CMake package, pkg-config
#   gpu_tests    for `make dist` alone: tests that need a GPU, and what runs them
# tools/dist packs `program`, and most often `gpu_tests`.
set(programs ballast ballast-bench)
set(plugins ballast_cuda ballast_mpi ballast_loopback ballast_parquet)
if(TARGET ballast)
  add_custom_target(program)
  foreach(target ${programs} ${plugins} manual)
    if(TARGET ${target})
      add_dependencies(program ${target})
    endif()
  endforeach()
endif()
if(NOT BALLAST_INSTALL)
  return()
endif()

# ballast_install_binaries(RUN_PATH DESTINATION TARGETS targets... [OPTIONS options of install...])
function(ballast_install_binaries RUN_PATH DESTINATION)
  cmake_parse_arguments(ARG "" "" "TARGETS;OPTIONS" ${ARGN})
  foreach(target ${ARG_TARGETS})
    if(TARGET ${target})
      set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${RUN_PATH})
      install(TARGETS ${target} ${ARG_OPTIONS} RUNTIME DESTINATION ${DESTINATION} LIBRARY DESTINATION ${DESTINATION})
    endif()
  endforeach()
endfunction()

# Program. Plugins lie beside the libraries that load them.
ballast_install_binaries("$ORIGIN/../lib" bin TARGETS ${programs} OPTIONS COMPONENT program)
ballast_install_binaries("" lib TARGETS ${plugins} OPTIONS COMPONENT program)
if(TARGET ballast)
  install(DIRECTORY configs benchmarks COMPONENT program DESTINATION share/ballast
    PATTERN "__pycache__" EXCLUDE PATTERN "results" EXCLUDE)
endif()
install(FILES LICENSE COMPONENT program DESTINATION share/doc/ballast)

# Man pages and completions, which the target `manual` makes.
install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ COMPONENT program DESTINATION share/man/man1 OPTIONAL
  FILES_MATCHING PATTERN "*.1")
install(FILES ${PROJECT_BINARY_DIR}/completions/ballast COMPONENT program
  DESTINATION share/bash-completion/completions OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/completions/_ballast COMPONENT program
  DESTINATION share/zsh/site-functions OPTIONAL)
install(FILES ${PROJECT_BINARY_DIR}/completions/ballast.fish COMPONENT program
  DESTINATION share/fish/vendor_completions.d OPTIONAL)

# Development: each part's rooms, and their headers but those that need CUDA's, MPI's or a library that is not found there.
include(CMakePackageConfigHelpers)
set(package lib/cmake/Ballast)
set(BALLAST_INSTALLED_PARTS "")
set(exported "")
foreach(part assignment moe)
  if(NOT TARGET ballast_${part})
    continue()
  endif()
  list(APPEND BALLAST_INSTALLED_PARTS ${part})
  set(rooms ${BALLAST_ROOMS_OF_${part}})
  list(REMOVE_ITEM rooms ${exported})
  list(APPEND exported ${rooms})
  list(TRANSFORM rooms PREPEND ballast_ OUTPUT_VARIABLE targets)
  if(NOT ballast_${part} IN_LIST targets)
    list(APPEND targets ballast_${part})
  endif()
  install(TARGETS ${targets} EXPORT Ballast-${part}
    ARCHIVE COMPONENT development DESTINATION lib LIBRARY COMPONENT program DESTINATION lib)
  install(EXPORT Ballast-${part} COMPONENT development NAMESPACE Ballast:: DESTINATION ${package})
  foreach(room ${rooms})
    install(DIRECTORY ballast/${room} COMPONENT development DESTINATION include/ballast
      FILES_MATCHING PATTERN "*.h" REGEX "_(cuda|mpi)\\.h$" EXCLUDE REGEX "/(launch_check|json|checksum)\\.h$" EXCLUDE)
  endforeach()
endforeach()
string(REGEX REPLACE "^([0-9]+)[.]([0-9]+).*" "\\1[.]\\2" Libtorch_SERIES "${Libtorch_VERSION}")
configure_package_config_file(cmake/BallastConfig.cmake.in ${PROJECT_BINARY_DIR}/BallastConfig.cmake
  INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/BallastConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/BallastConfig.cmake ${PROJECT_BINARY_DIR}/BallastConfigVersion.cmake
  cmake/FindLibtorch.cmake COMPONENT development DESTINATION ${package})
configure_file(cmake/ballast-assignment.pc.in ${PROJECT_BINARY_DIR}/ballast-assignment.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ballast-assignment.pc COMPONENT development DESTINATION lib/pkgconfig)

# Tests that need a GPU.
if(BALLAST_TESTS)
  get_property(rooms GLOBAL PROPERTY BALLAST_ROOMS)
  list(TRANSFORM rooms APPEND _tests OUTPUT_VARIABLE test_programs)
  ballast_install_binaries("$ORIGIN/../../lib" bin/tests TARGETS ${test_programs} workers_tests training_workers_tests
    OPTIONS COMPONENT gpu_tests EXCLUDE_FROM_ALL)
  install(PROGRAMS tools/gpu_check COMPONENT gpu_tests EXCLUDE_FROM_ALL DESTINATION .)
endif()

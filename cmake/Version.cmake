# ballast::version(): the project's version and the commit it was built from, found at build time.
# Included, it adds the generated file to the room `system`. As a script (cmake -P) it writes that file,
# and only when its content changes, so that a build after no commit rebuilds nothing.
if(CMAKE_SCRIPT_MODE_FILE)
  set(BALLAST_COMMIT "")
  execute_process(COMMAND git rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE repository OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(repository STREQUAL SOURCE)  # and not a tarball unpacked inside some other repository
    execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY ${SOURCE}
      OUTPUT_VARIABLE BALLAST_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  configure_file(${SOURCE}/ballast/system/version.cpp.in ${OUTPUT} @ONLY)
  return()
endif()

set(version_file ${PROJECT_BINARY_DIR}/version.cpp)
add_custom_target(ballast_version
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${version_file} -DBALLAST_VERSION=${PROJECT_VERSION}
    -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${version_file} COMMENT "Looking at the version" VERBATIM)
target_sources(ballast_system PRIVATE ${version_file})
add_dependencies(ballast_system ballast_version)

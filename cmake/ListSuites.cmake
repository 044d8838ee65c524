# ballast_list_suites(PROGRAM PREFIX FILTER LABEL [properties...])
#   CTest includes this when it starts (see ballast_tests in cmake/Room.cmake): each suite of a test program becomes one
#   test. Not each TEST: a process takes a third of a second to load libtorch, and there are more than a thousand.
#   A suite whose name ends in Long has the label `long` too: `make test` leaves it out.
function(ballast_list_suites PROGRAM PREFIX FILTER LABEL)
  if(NOT EXISTS "${PROGRAM}")
    add_test(${PREFIX}NOT_BUILT "${PROGRAM}")
    return()
  endif()
  set(list "${PROGRAM}.${LABEL}.suites")
  if(NOT EXISTS "${list}" OR "${PROGRAM}" IS_NEWER_THAN "${list}")
    execute_process(COMMAND "${PROGRAM}" --gtest_list_tests --gtest_filter=${FILTER}
      OUTPUT_FILE "${list}.new" RESULT_VARIABLE result TIMEOUT 60)
    if(NOT result EQUAL 0)
      message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${result}")
    endif()
    file(RENAME "${list}.new" "${list}")
  endif()
  file(STRINGS "${list}" lines REGEX "^[A-Za-z0-9_/]+\\.")  # tests are indented below their suite
  foreach(line ${lines})
    string(REGEX REPLACE "\\..*" "" suite "${line}")
    set(labels ${LABEL})
    if(suite MATCHES "Long(/|$)")
      list(APPEND labels long)
    endif()
    add_test(${PREFIX}${suite} "${PROGRAM}" --gtest_filter=${suite}.*)
    set_tests_properties(${PREFIX}${suite} PROPERTIES LABELS "${labels}" ${ARGN})
  endforeach()
endfunction()

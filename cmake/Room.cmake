# ballast_room(NAME [STOREY storey] [TORCH] [SHARED] [DEPENDS rooms...] [LINK libraries...])
#   A room is one library made of all .cpp files in ballast/NAME, or ballast/STOREY/NAME. DEPENDS
#   names the rooms whose headers it may include; tools/check_rooms.py holds every #include to it.
#   Nothing where BALLAST_PART leaves the room out.
# ballast_tests(NAME [LINK libraries...])
#   All tests/NAME/*_test.cpp, one program, each suite a test in CTest. Suites whose name ends in Cuda
#   need a GPU: label `cuda`, and not part of CTest where there is none (see tools/gpu_check).
# ballast_python_tests(FOLDER LABEL label [SECONDS at most])
#   Each tests/FOLDER/*_test.py is a test.
function(ballast_room NAME)
  if(NOT BALLAST_PART STREQUAL "all" AND NOT NAME IN_LIST BALLAST_ROOMS_OF_${BALLAST_PART})
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY BALLAST_ROOMS ${NAME})
  cmake_parse_arguments(ARG "TORCH;SHARED" "STOREY" "DEPENDS;LINK" ${ARGN})
  cmake_path(APPEND CMAKE_CURRENT_SOURCE_DIR ${ARG_STOREY} ${NAME} OUTPUT_VARIABLE folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_(cuda|mpi|parquet|preload)\\.cpp$")  # those belong to the plugins
  set(kind STATIC)
  if(ARG_SHARED)
    set(kind SHARED)
  endif()
  add_library(ballast_${NAME} ${kind} ${sources})
  set_target_properties(ballast_${NAME} PROPERTIES EXPORT_NAME ${NAME} DEFINE_SYMBOL "")
  target_compile_features(ballast_${NAME} PUBLIC cxx_std_20)
  target_include_directories(ballast_${NAME} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  list(TRANSFORM ARG_DEPENDS PREPEND ballast_)
  target_link_libraries(ballast_${NAME} PUBLIC ${ARG_DEPENDS})
  # Of the installed package's parts, each finds what it needs (cmake/BallastConfig.cmake.in), and no more is linked.
  foreach(library ${ARG_LINK})
    target_link_libraries(ballast_${NAME} PUBLIC
      $<BUILD_INTERFACE:${library}> $<INSTALL_INTERFACE:$<TARGET_NAME_IF_EXISTS:${library}>>)
  endforeach()
  if(ARG_TORCH)
    target_link_libraries(ballast_${NAME} PUBLIC Libtorch::cpu)
    # Whatever is linked with libtorch holds this constructor (ballast/system/onednn_limit.h).
    target_link_options(ballast_${NAME} PUBLIC -Wl,--undefined=ballast_limit_onednn)
    if(NAME MATCHES "^(kernels|experts)$")  # they have options of their own (ballast/CMakeLists.txt)
      ballast_precompile(ballast_${NAME} loops <torch/csrc/autograd/custom_function.h> ${BALLAST_TORCH_HEADERS})
    else()
      if(BALLAST_SANITIZE)  # their loops are libtorch's, and a sanitizer's checks take long to optimise
        target_compile_options(ballast_${NAME} PRIVATE -O0)
      endif()
      ballast_precompile(ballast_${NAME} rooms ${BALLAST_TORCH_HEADERS})
    endif()
  endif()
  set_target_properties(ballast_${NAME} PROPERTIES BALLAST_USES_TORCH "${ARG_TORCH}")
endfunction()

function(ballast_tests NAME)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  set(needs_gpu "*Cuda.*:*Cuda/*")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${NAME}_tests ${sources})
  target_include_directories(${NAME}_tests PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME}_tests PRIVATE ballast_${NAME} ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  get_target_property(uses_torch ballast_${NAME} BALLAST_USES_TORCH)
  if(uses_torch)
    ballast_precompile(${NAME}_tests tests ${BALLAST_TEST_HEADERS})
  endif()
  # Only where they are used: what knows its checkout is compiled anew in each clone.
  foreach(source ${sources})
    file(STRINGS ${source} uses REGEX "BALLAST_(SOURCE|BINARY)_DIR" LIMIT_COUNT 1)
    if(uses)
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS
        "BALLAST_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\";BALLAST_BINARY_DIR=\"${PROJECT_BINARY_DIR}\"")
    endif()
  endforeach()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${NAME}_suites.cmake)
  set(program ${PROJECT_BINARY_DIR}/${NAME}_tests)
  # Tests run side by side: threads of one that spin would take the other's core.
  set(lines "include([[${PROJECT_SOURCE_DIR}/cmake/ListSuites.cmake]])"
    "ballast_list_suites([[${program}]] ${NAME}/ -${needs_gpu} ${NAME} TIMEOUT 1200 ENVIRONMENT OMP_NUM_THREADS=1)")
  if(EXISTS /dev/nvidiactl)
    list(APPEND lines "ballast_list_suites([[${program}]] ${NAME}/ ${needs_gpu} cuda TIMEOUT 1200)")
  endif()
  list(JOIN lines "\n" lines)
  file(CONFIGURE OUTPUT ${file} CONTENT "${lines}\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

function(ballast_python_tests FOLDER)
  cmake_parse_arguments(ARG "" "LABEL;SECONDS" "" ${ARGN})
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 600)
  endif()
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${FOLDER}/*_test.py)
  foreach(file ${files})
    cmake_path(GET file STEM name)
    add_test(NAME ${FOLDER}/${name} COMMAND ${PROJECT_SOURCE_DIR}/tools/python_test ${file})
    set_tests_properties(${FOLDER}/${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_SECONDS}
      # As the program sets it (cli/program.cpp), which then need not start twice: loading libtorch is half of a short call.
      ENVIRONMENT "BALLAST_BUILD=${PROJECT_BINARY_DIR};BALLAST_SOURCE=${PROJECT_SOURCE_DIR};GOMP_SPINCOUNT=1000")
  endforeach()
endfunction()

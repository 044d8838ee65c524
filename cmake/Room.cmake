# ballast_room(NAME [TORCH] [SHARED] [DEPENDS rooms...] [LINK libraries...])
#   A room is one library made of all .cpp files in ballast/NAME. DEPENDS names the rooms whose
#   headers it may include; tools/check_rooms.py holds every #include to it.
# ballast_tests(NAME [LINK libraries...])
#   All tests/NAME/*_test.cpp, one program, each TEST a test of its own in CTest.
function(ballast_room NAME)
  cmake_parse_arguments(ARG "TORCH;SHARED" "" "DEPENDS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")  # those belong to the CUDA plugin
  if(NOT sources)  # a room not yet moved into
    add_library(ballast_${NAME} INTERFACE)
    return()
  endif()
  set(kind STATIC)
  if(ARG_SHARED)
    set(kind SHARED)
  endif()
  add_library(ballast_${NAME} ${kind} ${sources})
  target_include_directories(ballast_${NAME} PUBLIC ${CMAKE_SOURCE_DIR})
  list(TRANSFORM ARG_DEPENDS PREPEND ballast_)
  target_link_libraries(ballast_${NAME} PUBLIC ${ARG_DEPENDS} ${ARG_LINK})
  if(ARG_TORCH)
    target_link_libraries(ballast_${NAME} PUBLIC Libtorch::cpu)
  endif()
endfunction()

function(ballast_tests NAME)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${NAME}_tests ${sources})
  target_include_directories(${NAME}_tests PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${NAME}_tests PRIVATE ballast_${NAME} ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${NAME}_tests PRIVATE
    BALLAST_SOURCE_DIR="${CMAKE_SOURCE_DIR}" BALLAST_BINARY_DIR="${CMAKE_BINARY_DIR}")
  gtest_discover_tests(${NAME}_tests TEST_PREFIX ${NAME}/ DISCOVERY_TIMEOUT 60 DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS ${NAME} TIMEOUT 600)
endfunction()
include(GoogleTest)

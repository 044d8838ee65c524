# ballast_precompile(TARGET GROUP HEADERS...): the headers are compiled once, for all targets of the group, which must
#   have the same compile options, and all definitions of the first one. Half of a build from nothing goes into reading
#   libtorch's headers.
#   Our files include what they use all the same: with BALLAST_PRECOMPILE off they must compile.
option(BALLAST_PRECOMPILE
  "Compile libtorch's headers once for all files" ${PROJECT_IS_TOP_LEVEL})

set(BALLAST_TORCH_HEADERS <ATen/core/Tensor.h> <ATen/TensorOperators.h> <torch/library.h> <fmt/format.h> <filesystem>
  <functional> <map> <string> <vector>)
set(BALLAST_TEST_HEADERS <ATen/ATen.h> <torch/csrc/autograd/autograd.h> <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>
  <filesystem> <functional> <map> <string> <vector>)

function(ballast_precompile TARGET GROUP)
  if(NOT BALLAST_PRECOMPILE)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${TARGET} PRIVATE -fpch-preprocess)  # tells ccache where they are
  endif()
  # GCC 12 no longer knows that strings are the system's, and warns of what it takes for their ends.
  if(GROUP STREQUAL "tests" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${TARGET} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
  get_property(owner GLOBAL PROPERTY BALLAST_PRECOMPILED_BY_${GROUP})
  if(owner)
    target_precompile_headers(${TARGET} REUSE_FROM ${owner})
  else()
    set_property(GLOBAL PROPERTY BALLAST_PRECOMPILED_BY_${GROUP} ${TARGET})
    target_precompile_headers(${TARGET} PRIVATE ${ARGN})
  endif()
endfunction()

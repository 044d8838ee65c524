# The CUDA plugin: all ballast/*/*_cuda.cu and *_cuda.cpp in one library, libballast_cuda.so, that the
# program loads at run time (ballast/kernels/cuda_plugin.h). It is built wherever nvcc is, GPU or not.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ballast/*/*_cuda.cu ${PROJECT_SOURCE_DIR}/ballast/*/*_cuda.cpp)
if(NOT cuda_sources OR NOT TARGET ballast_experts)
  return()
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90)  # or what -DCMAKE_CUDA_ARCHITECTURES= says: a list
endif()
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # it may have been installed since the last look
  if(NOT DEFINED ENV{CUDACXX})
    find_program(NVCC nvcc HINTS /usr/local/cuda/bin NO_CACHE)
    if(NVCC)
      set(ENV{CUDACXX} ${NVCC})
    endif()
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "No CUDA plugin: nvcc was not found (set CUDACXX if it is there)")
  return()
elseif(NOT TARGET Libtorch::cuda)
  message(STATUS "No CUDA plugin: ${Libtorch_FOLDER} was built without CUDA")
  return()
endif()

enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it, nvcc does
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit REQUIRED)

# cuDNN's own gradient of attention, where its headers are: those of cuDNN and of its front end, which
# tools/setup fetches. libtorch_cuda brings the library. Without them libtorch's operation is used.
find_path(CUDNN_INCLUDE_FOLDER cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_path(CUDNN_FRONTEND_FOLDER cudnn_frontend.h HINTS ${PROJECT_SOURCE_DIR}/.deps/cudnn-frontend/include)
set(attention_gradient ${PROJECT_SOURCE_DIR}/ballast/kernels/attention_gradient_cuda.cpp)
if(CUDNN_INCLUDE_FOLDER AND CUDNN_FRONTEND_FOLDER)
  set_source_files_properties(${attention_gradient} PROPERTIES
    COMPILE_OPTIONS "-isystem;${CUDNN_FRONTEND_FOLDER};-isystem;${CUDNN_INCLUDE_FOLDER}")
else()
  message(STATUS "No gradient of attention by cuDNN itself: cudnn.h or cudnn_frontend.h was not found")
  list(REMOVE_ITEM cuda_sources ${attention_gradient})
endif()

add_library(ballast_cuda SHARED ${cuda_sources})
target_compile_options(ballast_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>")
target_include_directories(ballast_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(ballast_cuda PRIVATE ballast_kernels ballast_comm ballast_experts Libtorch::cuda)
# libtorch_cuda brings the CUDA runtime and cublasLt, found by its own run path: copies of our own would be
# second ones in the process.
set_target_properties(ballast_cuda PROPERTIES
  LINKER_LANGUAGE CXX CUDA_STANDARD 20 CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY None)

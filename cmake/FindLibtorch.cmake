# Finds libtorch without its own CMake package, which demands nvcc for a CPU program.
#   Libtorch::cpu    c10 and torch_cpu: all that the program links
#   Libtorch::cuda   c10_cuda and torch_cuda too: for the plugin, if this libtorch was built with CUDA
# The folder (with include/ and lib/ in it) is given as -DLIBTORCH=, or LIBTORCH in the environment, or
# recorded by tools/setup in .deps/libtorch.
set(LIBTORCH "" CACHE PATH "Folder of libtorch, with include/ and lib/ in it; empty: what tools/setup chose")
set(record ${CMAKE_SOURCE_DIR}/.deps/libtorch)
set(Libtorch_FOLDER "${LIBTORCH}")
if(NOT Libtorch_FOLDER)
  set(Libtorch_FOLDER "$ENV{LIBTORCH}")
endif()
if(EXISTS ${record})
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${record})
  if(NOT Libtorch_FOLDER)
    file(STRINGS ${record} Libtorch_FOLDER LIMIT_COUNT 1)
  endif()
endif()

if(Libtorch_FOLDER)
  get_filename_component(Libtorch_FOLDER ${Libtorch_FOLDER} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
endif()

set(Libtorch_VERSION "")
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # newer, older libtorch
  if(NOT Libtorch_VERSION AND EXISTS ${Libtorch_FOLDER}/include/${header})
    file(STRINGS ${Libtorch_FOLDER}/include/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    string(REPLACE ";" "." Libtorch_VERSION "${numbers}")
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_FOLDER Libtorch_VERSION VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "run tools/setup (or `make build`), or give LIBTORCH=/path/to/libtorch")

if(Libtorch_FOUND AND NOT TARGET Libtorch::cpu)
  set(Libtorch_FOUND_FOLDER ${Libtorch_FOLDER} CACHE INTERNAL "For tools/dist")
  set(Libtorch_FOUND_VERSION ${Libtorch_VERSION} CACHE INTERNAL "For tools/dist")
  set(folders ${Libtorch_FOLDER}/include ${Libtorch_FOLDER}/include/torch/csrc/api/include)
  function(libtorch_library NAME FILE)
    add_library(Libtorch::${NAME} SHARED IMPORTED)
    set_target_properties(Libtorch::${NAME} PROPERTIES IMPORTED_LOCATION ${Libtorch_FOLDER}/lib/lib${FILE}.so)
  endfunction()

  libtorch_library(c10 c10)
  libtorch_library(cpu torch_cpu)
  target_link_libraries(Libtorch::cpu INTERFACE Libtorch::c10)
  foreach(folder ${folders})
    # -idirafter: libtorch ships its own fmt headers, which must not shadow the system's.
    target_compile_options(Libtorch::cpu INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${folder}>"
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-isystem ${folder}>")
  endforeach()
  # libtorch_cpu names CUDA's profiler library, which its own run path finds; the linker need not.
  target_link_options(Libtorch::cpu INTERFACE "-Wl,--allow-shlib-undefined")
  # CMake leaves folders of the checkout, as .deps, out of run paths (cmake/Toolchain.cmake).
  target_link_options(Libtorch::cpu INTERFACE "-Wl,-rpath,${Libtorch_FOLDER}/lib")

  if(EXISTS ${Libtorch_FOLDER}/lib/libtorch_cuda.so)
    libtorch_library(c10_cuda c10_cuda)
    add_library(Libtorch::cuda INTERFACE IMPORTED)
    # Kernels register themselves when libtorch_cuda is loaded: no symbol of it need be used.
    target_link_libraries(Libtorch::cuda INTERFACE Libtorch::cpu Libtorch::c10_cuda
      "-Wl,--no-as-needed" ${Libtorch_FOLDER}/lib/libtorch_cuda.so "-Wl,--as-needed")
  endif()
endif()

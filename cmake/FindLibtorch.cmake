# Finds libtorch without its own CMake package, which demands nvcc for a CPU program.
#   Libtorch::cpu    c10 and torch_cpu: all that the program links
#   Libtorch::cuda   c10_cuda and torch_cuda too: for the plugin, if this libtorch was built with CUDA
# The folder (with include/ and lib/ in it) is given as -DLIBTORCH=, or LIBTORCH in the environment, or by whoever calls
# this, as Libtorch_HINT. It is a part of the installed package too, and knows nothing of this checkout.
set(LIBTORCH "" CACHE PATH "Folder of libtorch, with include/ and lib/ in it; empty: what Ballast knows of")
set(Libtorch_FOLDER "")
foreach(folder "${LIBTORCH}" "$ENV{LIBTORCH}" "${Libtorch_HINT}")
  if(folder AND NOT Libtorch_FOLDER)
    get_filename_component(Libtorch_FOLDER ${folder} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  endif()
endforeach()

set(Libtorch_VERSION "")
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # newer, older libtorch
  if(NOT Libtorch_VERSION AND EXISTS ${Libtorch_FOLDER}/include/${header})
    file(STRINGS ${Libtorch_FOLDER}/include/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    string(REPLACE ";" "." Libtorch_VERSION "${numbers}")
  endif()
endforeach()

set(fault "")
if(Libtorch_FOLDER AND NOT Libtorch_VERSION)
  set(fault "${Libtorch_FOLDER} holds no libtorch: ")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_FOLDER Libtorch_VERSION VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "${fault}give -DLIBTORCH=/path/to/libtorch (in the checkout of Ballast, tools/setup gets one)")

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
  # CMake leaves folders of the project, as .deps, out of run paths. Among the libraries it comes behind CMake's own.
  target_link_libraries(Libtorch::cpu INTERFACE Libtorch::c10 "-Wl,-rpath,${Libtorch_FOLDER}/lib")
  foreach(folder ${folders})
    # -idirafter: libtorch ships its own fmt headers, which must not shadow the system's.
    target_compile_options(Libtorch::cpu INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${folder}>"
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-isystem ${folder}>")
  endforeach()
  # libtorch_cpu names CUDA's profiler library, which its own run path finds; the linker need not.
  target_link_options(Libtorch::cpu INTERFACE "-Wl,--allow-shlib-undefined")

  if(EXISTS ${Libtorch_FOLDER}/lib/libtorch_cuda.so)
    libtorch_library(c10_cuda c10_cuda)
    add_library(Libtorch::cuda INTERFACE IMPORTED)
    # Kernels register themselves when libtorch_cuda is loaded: no symbol of it need be used.
    target_link_libraries(Libtorch::cuda INTERFACE Libtorch::cpu Libtorch::c10_cuda
      "-Wl,--no-as-needed" ${Libtorch_FOLDER}/lib/libtorch_cuda.so "-Wl,--as-needed")
  endif()
endif()

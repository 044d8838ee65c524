# The MPI plugin: all ballast/*/*_mpi.cpp in one library, libballast_mpi.so, that the program loads when
# it has several workers (ballast/comm/mpi_plugin.h). Without MPI all else builds and runs, one worker at a time.
if(NOT TARGET ballast_comm)
  return()
endif()
file(GLOB mpi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ballast/*/*_mpi.cpp)
set(MPI_CXX_SKIP_MPICXX ON)  # the C functions; MPI's C++ classes are long gone from the standard
find_package(MPI QUIET COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(STATUS "No MPI plugin: mpi.h was not found (Debian, Ubuntu: libopenmpi-dev)")
  return()
endif()
add_library(ballast_mpi SHARED ${mpi_sources})
target_link_libraries(ballast_mpi PRIVATE ballast_comm "-Wl,--as-needed" MPI::MPI_CXX)
# What mpirun loads first, so that it listens on this machine alone (ballast/comm/launch.cpp). mpirun has no sanitizer.
add_library(ballast_loopback SHARED ${PROJECT_SOURCE_DIR}/ballast/comm/loopback_preload.cpp)
target_compile_options(ballast_loopback PRIVATE -fno-sanitize=all)
target_link_options(ballast_loopback PRIVATE -fno-sanitize=all)
add_dependencies(ballast_mpi ballast_loopback)

# How we compile and link: ccache and mold where they are, run paths, one warning set, sanitizers by preset.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths are hashed relative to the checkout, so that a second clone finds what the first compiled. Precompiled headers
  # are found by their content; GCC itself sees whether they fit.
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
    ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
endif()

# What is built looks for libraries beside itself and where it was linked with them (libtorch, MPI). It has one run path,
# also when it is installed: otherwise CMake pads the first with empty elements, so that the second will fit, and the
# loader takes an empty element for the current folder.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)  # messages name files from the root
option(BALLAST_WERROR "Treat warnings as errors (CI)" OFF)
if(BALLAST_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

set(BALLAST_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
if(BALLAST_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${BALLAST_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${BALLAST_SANITIZE})
endif()
if(BALLAST_SANITIZE MATCHES address)
  add_library(keep_plugins OBJECT ${PROJECT_SOURCE_DIR}/tools/keep_plugins.cpp)
  link_libraries($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:keep_plugins>)
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,--export-dynamic-symbol=dlclose>)
endif()

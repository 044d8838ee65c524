# exchange/modeling_ballast.py is part of the program, which writes it beside exported models: exports
# work wherever the program was copied to.
if(NOT TARGET ballast_exchange)
  return()
endif()
set(modeling_source ${PROJECT_SOURCE_DIR}/ballast/exchange/modeling_ballast.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${modeling_source})
file(READ ${modeling_source} BALLAST_MODELING)
configure_file(${PROJECT_SOURCE_DIR}/ballast/exchange/modeling_ballast.cpp.in
  ${PROJECT_BINARY_DIR}/modeling_ballast.cpp @ONLY)
target_sources(ballast_exchange PRIVATE ${PROJECT_BINARY_DIR}/modeling_ballast.cpp)

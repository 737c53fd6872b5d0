# Installs the public headers of gyre_public_folders and all headers of ours that these include, so that none can be missing.
# Run by `cmake --install`; GyreLibraries.cmake sets the variables.
cmake_minimum_required(VERSION 3.25)  # Its policies.

set(waiting)
foreach(folder IN LISTS gyre_public_folders)
  file(GLOB headers RELATIVE "${gyre_source}" "${gyre_source}/gyre/${folder}/*.h")
  list(APPEND waiting ${headers})
endforeach()
list(FILTER waiting EXCLUDE REGEX "_test_support\\.h$")

set(seen)
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST seen)
    continue()
  endif()
  list(APPEND seen "${header}")
  file(STRINGS "${gyre_source}/${header}" lines REGEX "^#include \"gyre/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"(.+)\".*$" "\\1" included "${line}")
    list(APPEND waiting "${included}")
  endforeach()
endwhile()

foreach(header IN LISTS seen)
  get_filename_component(folder "${header}" DIRECTORY)
  file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${gyre_include_folder}/${folder}" TYPE FILE FILES "${gyre_source}/${header}")
endforeach()

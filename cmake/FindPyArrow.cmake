# Arrow's C++ libraries and headers inside the Python package `pyarrow`, as the target PyArrow::parquet (docs/adr/0054).
# The package is that of Python_EXECUTABLE: find_package(Python COMPONENTS Interpreter) before.
if(Python_EXECUTABLE)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0])"
    OUTPUT_VARIABLE PyArrow_FOLDER RESULT_VARIABLE gyre_pyarrow_status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT gyre_pyarrow_status EQUAL 0)
    set(PyArrow_FOLDER "")
  endif()
endif()
# Not cached: another Python, or pip's next throw-away environment, has another pyarrow.
set(PyArrow_VERSION "")
set(PyArrow_SONAME "")
if(EXISTS "${PyArrow_FOLDER}/include/arrow/util/config.h")
  file(STRINGS "${PyArrow_FOLDER}/include/arrow/util/config.h" gyre_arrow_line REGEX "define ARROW_VERSION_STRING " LIMIT_COUNT 1)
  string(REGEX REPLACE "^.*\"(.*)\".*$" "\\1" PyArrow_VERSION "${gyre_arrow_line}")
  file(STRINGS "${PyArrow_FOLDER}/include/arrow/util/config.h" gyre_arrow_line REGEX "define ARROW_SO_VERSION " LIMIT_COUNT 1)
  string(REGEX REPLACE "^.*\"(.*)\".*$" "\\1" PyArrow_SONAME "${gyre_arrow_line}")
endif()
foreach(library arrow parquet)
  set(PyArrow_${library}_LIBRARY "${PyArrow_FOLDER}/lib${library}.so.${PyArrow_SONAME}")
  if(NOT EXISTS "${PyArrow_${library}_LIBRARY}")
    set(PyArrow_${library}_LIBRARY "PyArrow_${library}_LIBRARY-NOTFOUND")
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PyArrow
  REQUIRED_VARS PyArrow_arrow_LIBRARY PyArrow_parquet_LIBRARY PyArrow_FOLDER
  VERSION_VAR PyArrow_VERSION)

if(PyArrow_FOUND AND NOT TARGET PyArrow::parquet)
  add_library(PyArrow::parquet INTERFACE IMPORTED)
  set_target_properties(PyArrow::parquet PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${PyArrow_FOLDER}/include")
  target_link_libraries(PyArrow::parquet INTERFACE "${PyArrow_arrow_LIBRARY}" "${PyArrow_parquet_LIBRARY}")
endif()

# The libtorch inside the Python package `torch`, as the target Torch::Torch.
# Not PyTorch's own TorchConfig.cmake: that one insists on a CUDA toolkit wherever the package is a CUDA build, which on most
# machines is what pip installs. We compile and link against the CPU side only, which every build carries.
# The package is TORCH_INSTALL_PREFIX where that is set, else that of Python_EXECUTABLE: find_package(Python COMPONENTS Interpreter)
# before. Programs of others find this file beside gyreConfig.cmake.
if(NOT TORCH_INSTALL_PREFIX)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE gyre_torch_folder RESULT_VARIABLE gyre_torch_status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(gyre_torch_status EQUAL 0)
    set(TORCH_INSTALL_PREFIX "${gyre_torch_folder}")
  endif()
endif()
if(EXISTS "${TORCH_INSTALL_PREFIX}/version.py")
  file(STRINGS "${TORCH_INSTALL_PREFIX}/version.py" gyre_torch_line REGEX "^__version__ = " LIMIT_COUNT 1)
  string(REGEX REPLACE "^__version__ = ['\"](.*)['\"].*$" "\\1" Torch_VERSION "${gyre_torch_line}")
endif()

# Not cached: another Python, or pip's next throw-away environment, has another torch.
find_path(TORCH_INCLUDE_DIR torch/all.h PATHS "${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include" NO_DEFAULT_PATH NO_CACHE)
foreach(library torch torch_cpu c10)
  find_library(TORCH_${library}_LIBRARY ${library} PATHS "${TORCH_INSTALL_PREFIX}/lib" NO_DEFAULT_PATH NO_CACHE)
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch
  REQUIRED_VARS TORCH_torch_LIBRARY TORCH_torch_cpu_LIBRARY TORCH_c10_LIBRARY TORCH_INCLUDE_DIR
  VERSION_VAR Torch_VERSION
  REASON_FAILURE_MESSAGE "The Python at ${Python_EXECUTABLE} has no package torch 2.13. Run ./dev setup or configure with -DGYRE_WITH_TORCH=OFF.")

if(Torch_FOUND AND NOT TARGET Torch::Torch)
  add_library(Torch::Torch INTERFACE IMPORTED)
  set_target_properties(Torch::Torch PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INSTALL_PREFIX}/include;${TORCH_INCLUDE_DIR}")
  # libtorch registers its kernels in static initialisers: keep torch_cpu even where the linker sees no use of it.
  target_link_libraries(Torch::Torch INTERFACE
    -Wl,--no-as-needed "${TORCH_torch_LIBRARY}" "${TORCH_torch_cpu_LIBRARY}" "${TORCH_c10_LIBRARY}" -Wl,--as-needed Threads::Threads)
endif()
set(TORCH_LIBRARIES Torch::Torch)

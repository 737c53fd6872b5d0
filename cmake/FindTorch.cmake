# The libtorch inside the Python package `torch`, as the target Torch::Torch.
# Not PyTorch's own TorchConfig.cmake: that one insists on a CUDA toolkit wherever the package is a CUDA build, which on most
# machines is what pip installs. We compile and link against the CPU side only, which every build carries.
# Needs find_package(Python COMPONENTS Interpreter) before.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.metadata as m, importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0]); print(m.version('torch'))"
  OUTPUT_VARIABLE gyre_torch_answer RESULT_VARIABLE gyre_torch_status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(gyre_torch_status EQUAL 0)
  string(REPLACE "\n" ";" gyre_torch_answer "${gyre_torch_answer}")
  list(GET gyre_torch_answer 0 TORCH_INSTALL_PREFIX)
  list(GET gyre_torch_answer 1 Torch_VERSION)
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
  # torch's include folder carries an {fmt} of its own, newer than the one we link; ours must be found first.
  find_path(GYRE_FMT_INCLUDE_DIR fmt/format.h REQUIRED)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/before_torch")
  file(CREATE_LINK "${GYRE_FMT_INCLUDE_DIR}/fmt" "${PROJECT_BINARY_DIR}/before_torch/fmt" SYMBOLIC)
  target_include_directories(Torch::Torch INTERFACE
    "${PROJECT_BINARY_DIR}/before_torch" "${TORCH_INSTALL_PREFIX}/include" "${TORCH_INCLUDE_DIR}")
  # libtorch registers its kernels in static initialisers: keep torch_cpu even where the linker sees no use of it.
  target_link_libraries(Torch::Torch INTERFACE
    -Wl,--no-as-needed "${TORCH_torch_LIBRARY}" "${TORCH_torch_cpu_LIBRARY}" "${TORCH_c10_LIBRARY}" -Wl,--as-needed Threads::Threads)
endif()
set(TORCH_LIBRARIES Torch::Torch)

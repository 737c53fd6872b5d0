# Where programs land: build/<preset>/bin while working, the environment's scripts folder when pip installs the wheel.
# Runs at the end of the root CMakeLists.txt, when all targets exist.
function(gyre_place_programs)
  set(gyre_demo_programs gyre_run gyre_cifar10_demo)  # For ./dev demo only; never installed.
  foreach(target gyre_app gyre_node gyre_node_contained gyre_run gyre_bench_decode gyre_bench_rank gyre_bench_step gyre_bench_store gyre_cifar10 gyre_cifar10_demo gyre_cosmoflow gyre_resnet50)
    if(NOT TARGET ${target})
      continue()
    endif()
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
    if(SKBUILD AND NOT target IN_LIST gyre_demo_programs)
      gyre_install_program(${target})
    endif()
  endforeach()
endfunction()

# A program in ENV/bin finds libtorch in ENV/lib/pythonX.Y/site-packages (Debian's own Python says dist-packages), and libgyre_parquet and libgyre_curl there; copies of gyre and gyre-node on hosts of an ssh cluster, their libraries beside them. In a
# wheel of ./dev wheel the programs stand in a folder beside torch's, and ENV/bin has scripts that run them.
function(gyre_install_program target)
  set(python_folder "$ORIGIN/../lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}")
  if(NOT target STREQUAL "gyre_node_contained")  # Its libraries are where the node puts them.
    set_target_properties(${target} PROPERTIES
    INSTALL_RPATH "${python_folder}/site-packages/torch/lib;${python_folder}/dist-packages/torch/lib;$ORIGIN/../torch/lib;${python_folder}/site-packages/gyre/lib;${python_folder}/dist-packages/gyre/lib;$ORIGIN/../gyre/lib;$ORIGIN/lib"
    INSTALL_RPATH_USE_LINK_PATH OFF)
  endif()
  install(TARGETS ${target} RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}" COMPONENT wheel)
endfunction()

cmake_language(DEFER DIRECTORY "${PROJECT_SOURCE_DIR}" CALL gyre_place_programs)

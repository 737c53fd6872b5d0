# Where programs land: build/<preset>/bin while working, the environment's scripts folder when pip installs the wheel.
# Runs at the end of the root CMakeLists.txt, when all targets exist.
function(gyre_place_programs)
  set(installed gyre_app gyre_node gyre_node_contained gyre_bench_decode gyre_bench_rank gyre_bench_step gyre_bench_store gyre_cifar10 gyre_cosmoflow gyre_resnet50)
  set(demo gyre_run gyre_cifar10_demo)  # For ./dev demo only; never installed.
  foreach(target ${installed} ${demo})
    if(NOT TARGET ${target})
      continue()
    endif()
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
    if(SKBUILD AND target IN_LIST installed)
      gyre_install_program(${target})
    endif()
  endforeach()
  # What `./dev build` builds: all that is installed, without the tests and the benchmarks for developers.
  add_custom_target(gyre_product)
  foreach(target ${installed} gyre_curl gyre_models_shared gyre_parquet gyre_python gyre_shared gyre_tensorflow gyre_train_shared)
    if(TARGET ${target})
      add_dependencies(gyre_product ${target})
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

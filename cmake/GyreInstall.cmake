# Where programs land: build/<preset>/bin while working, the environment's scripts folder when pip installs the wheel.
# Runs at the end of the root CMakeLists.txt, when all targets exist.
function(gyre_place_programs)
  foreach(target gyre_app gyre_cifar10)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
    endif()
  endforeach()
endfunction()
cmake_language(DEFER DIRECTORY "${PROJECT_SOURCE_DIR}" CALL gyre_place_programs)

# What programs of others link: libgyre, libgyre_models and libgyre_train as shared libraries, and how find_package and pkg-config find them.
# The libraries are made of the same objects as the static targets (docs/adr/0049); package/*.map says which names they show.
# A version 0.N may change what 0.M promised, so both numbers are in the libraries' names.
set(gyre_abi_version "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(gyre_package_templates "${CMAKE_CURRENT_LIST_DIR}/package")

# Where the parts go below the prefix. In the wheel the package's folder is the prefix, and nothing there can be a link.
if(SKBUILD)
  set(gyre_package_root "gyre/")
  set(gyre_package_component COMPONENT wheel)
  set(gyre_pkg_config_link "-l:libgyre.so.${gyre_abi_version}")
else()
  set(gyre_package_root "")
  set(gyre_package_component)
  set(gyre_pkg_config_link "-lgyre")
endif()

# gyre_shared_library(gyre MAP exports.map OBJECTS base net LINK OpenSSL::SSL)
function(gyre_shared_library name)
  cmake_parse_arguments(ARG "" "MAP" "OBJECTS;LINK" ${ARGN})
  list(TRANSFORM ARG_OBJECTS REPLACE "(.+)" "$<TARGET_OBJECTS:gyre_\\1>")
  set(map "${gyre_package_templates}/${ARG_MAP}")
  set(target ${name}_shared)
  add_library(${target} SHARED ${ARG_OBJECTS})
  target_link_libraries(${target} PRIVATE gyre_flags ${ARG_LINK})
  # Every name is found at link time, here and not first in somebody's program.
  target_link_options(${target} PRIVATE "-Wl,--version-script=${map}" -Wl,-z,defs -Wl,-Bsymbolic-functions)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name}
    LINKER_LANGUAGE CXX
    LINK_DEPENDS "${map}"
    VERSION ${gyre_abi_version}
    SOVERSION ${gyre_abi_version}
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    INSTALL_RPATH "$ORIGIN")
  if(SKBUILD)
    install(TARGETS ${target} LIBRARY DESTINATION "${gyre_package_root}lib" NAMELINK_SKIP ${gyre_package_component})
  else()
    install(TARGETS ${target} LIBRARY DESTINATION "${gyre_package_root}lib")
  endif()
endfunction()

gyre_shared_library(gyre
  MAP exports.map
  OBJECTS base metrics net group collectives engine params
  LINK fmt::fmt spdlog::spdlog PkgConfig::XXHASH PkgConfig::ISAL PkgConfig::HWY OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
set(gyre_public_folders engine)
if(GYRE_WITH_TORCH)
  gyre_shared_library(gyre_models MAP exports_models.map OBJECTS models network_layers LINK gyre_shared Torch::Torch fmt::fmt)
  gyre_shared_library(gyre_train MAP exports_train.map OBJECTS train checkpoint data_timeline LINK gyre_shared Torch::Torch fmt::fmt spdlog::spdlog)
  # The user's torch: beside the package where that is a wheel, else the one that the build used.
  if(SKBUILD)
    set_target_properties(gyre_models_shared gyre_train_shared PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
  else()
    set_target_properties(gyre_models_shared gyre_train_shared PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  list(APPEND gyre_public_folders models train)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" gyre_torch_release "${Torch_VERSION}")
endif()

# gyre_package_files(LIB HEADERS HEADERS): below LIB what find_package and pkg-config read, for headers in HEADERS, which
# the two say in words of their own.
function(gyre_package_files folder gyre_cmake_headers gyre_pkg_config_headers)
  configure_file("${gyre_package_templates}/gyreConfig.cmake.in" "${folder}/cmake/gyre/gyreConfig.cmake" @ONLY)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/FindTorch.cmake" "${folder}/cmake/gyre/FindTorch.cmake" COPYONLY)
  write_basic_package_version_file("${folder}/cmake/gyre/gyreConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  configure_file("${gyre_package_templates}/gyre.pc.in" "${folder}/pkgconfig/gyre.pc" @ONLY)
endfunction()

include(CMakePackageConfigHelpers)
# In the build folder, to which `gyre-config` of a checkout points, and for the prefix.
gyre_package_files("${PROJECT_BINARY_DIR}/lib" "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}")
gyre_package_files("${PROJECT_BINARY_DIR}/package" "\${CMAKE_CURRENT_LIST_DIR}/../../../include" "\${prefix}/include")
install(DIRECTORY "${PROJECT_BINARY_DIR}/package/" DESTINATION "${gyre_package_root}lib" ${gyre_package_component})
install(CODE "set(gyre_source \"${PROJECT_SOURCE_DIR}\")
set(gyre_public_folders \"${gyre_public_folders}\")
set(gyre_include_folder \"${gyre_package_root}include\")" ${gyre_package_component})
install(SCRIPT "${gyre_package_templates}/install_headers.cmake" ${gyre_package_component})

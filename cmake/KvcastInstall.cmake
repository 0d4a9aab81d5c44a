# Installs the package for find_package(kvcast), with the targets kvcast::base, kvcast::event, kvcast::wire,
# kvcast::hash, kvcast::spec, kvcast::engine, kvcast::offload, kvcast::transfer, kvcast::cuda, kvcast::residency,
# kvcast::stream and kvcast::router.
include(CMakePackageConfigHelpers)
get_property(libraries GLOBAL PROPERTY KVCAST_LIBRARIES)
install(TARGETS ${libraries} kvcast_flags kvcast_msgpack EXPORT kvcastTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/kvcast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/schemas DESTINATION ${CMAKE_INSTALL_DATADIR}/kvcast)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/kvcast)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvcast)
install(EXPORT kvcastTargets NAMESPACE kvcast:: DESTINATION ${cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kvcastConfig.cmake.in
  ${PROJECT_BINARY_DIR}/kvcastConfig.cmake INSTALL_DESTINATION ${cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvcastConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvcastConfig.cmake ${PROJECT_BINARY_DIR}/kvcastConfigVersion.cmake
        DESTINATION ${cmake_dir})
if(KVCAST_TOOLS)
  install(TARGETS kvcast RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS kvcast_dev RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  # The program looks for its traces in ../share/kvcast.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/traces DESTINATION ${CMAKE_INSTALL_DATADIR}/kvcast)
endif()

# SPDX-License-Identifier: Apache-2.0
# How others find the library: by pkg-config (libf8client), or by CMake's find_package(f8client),
# which gives f8::client and, where protobuf-c is, f8::client_static.
include(CMakePackageConfigHelpers)
set(F8_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/f8client)

# Found from where the file lies, so that what is installed can be moved; an absolute LIBDIR cannot.
set(F8_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    file(RELATIVE_PATH F8_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    string(REGEX REPLACE "/$" "" F8_PC_PREFIX "\${pcfiledir}/${F8_PC_PREFIX}")
endif()
foreach(directory LIBDIR INCLUDEDIR)
    cmake_path(APPEND F8_PC_${directory} "\${prefix}" ${CMAKE_INSTALL_${directory}})
endforeach()
configure_file(libf8client.pc.in libf8client.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/libf8client.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(f8client-config.cmake.in f8client-config.cmake
    INSTALL_DESTINATION ${F8_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
# The soname stands for what is compatible; before 1.0 that is each minor version.
write_basic_package_version_file(f8client-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/f8client-config.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/f8client-config-version.cmake DESTINATION ${F8_PACKAGE_DIR})
foreach(set f8client f8client_static)
    install(EXPORT ${set} NAMESPACE f8:: FILE ${set}-targets.cmake DESTINATION ${F8_PACKAGE_DIR})
endforeach()

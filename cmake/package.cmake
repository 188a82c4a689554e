# Packages by CPack, made by script/release: a .deb against the distribution's libraries. The programs of deploy/debian run when
# it is installed and removed.
install(FILES deploy/config.yaml DESTINATION /etc/chimere COMPONENT configuration EXCLUDE_FROM_ALL)
set(CPACK_PACKAGE_NAME chimere)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "The Chimere authors")
set(CHIMERE_MAINTAINER "The Chimere authors <maintainers@chimere.example>" CACHE STRING "of the packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT ${CHIMERE_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "inference engine and server for hybrid language models")
set(CPACK_PACKAGE_DESCRIPTION "Runs language models with recurrent and attention layers on processors
and GPUs: in the terminal, and as a server with the APIs of OpenAI and
Anthropic, a chat page, documents and tools. A small model is included.")
set(CPACK_INSTALL_CMAKE_PROJECTS
  "${CMAKE_BINARY_DIR};chimere;runtime;/;${CMAKE_BINARY_DIR};chimere;configuration;/")
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package_debian.cmake)

set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(CMAKE_SYSROOT) # script/release sets DPKG_ADMINDIR, which says what its libraries belong to
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu)
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "poppler-utils")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libpq5")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)
include(CPack)

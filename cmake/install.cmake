# What `cmake --install` puts where. Component runtime: the program and all that a user of it needs, which packages contain;
# development: libchimere. Data go to share/chimere, where base/file.c finds them beside the program, wherever both are.
include(GNUInstallDirs)
set(data_dir ${CMAKE_INSTALL_DATADIR}/chimere)
set(CHIMERE_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "where completions of zsh go")

if(TARGET chimere_shared)
  list(JOIN LIBS_NAMES " " LIBS_TEXT)
  if(faiss_FOUND)
    set(LIBS_CXX "-lfaiss -lstdc++")
  endif()
  configure_file(cmake/chimere.pc.in chimere.pc @ONLY)
  install(TARGETS libchimere chimere_shared ARCHIVE COMPONENT development LIBRARY COMPONENT development)
  install(FILES include/chimere.h TYPE INCLUDE COMPONENT development)
  install(FILES ${CMAKE_BINARY_DIR}/chimere.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()
if(TARGET chimere_llama)
  install(TARGETS chimere_llama LIBRARY DESTINATION lib/chimere COMPONENT runtime)
endif()
install(TARGETS chimere COMPONENT runtime)
install(DIRECTORY pipelines DESTINATION ${data_dir} COMPONENT runtime)
install(FILES models/calibration.txt DESTINATION ${data_dir} COMPONENT runtime)
install(DIRECTORY eval DESTINATION ${data_dir} COMPONENT runtime FILES_MATCHING PATTERN "*.jsonl")
if(TARGET nano)
  install(FILES ${CMAKE_BINARY_DIR}/chimere-nano.gguf models/chimere-mini.gguf DESTINATION ${data_dir} COMPONENT runtime)
  install(FILES ${first_tables} DESTINATION ${data_dir}/engram COMPONENT runtime)
endif()

# Man pages and completions, by the program itself.
if(TARGET chimere_shared)
  set(manual ${CMAKE_BINARY_DIR}/manual)
  add_custom_command(OUTPUT ${manual}/man1/chimere.1.gz
    COMMAND ${CMAKE_COMMAND} -DCHIMERE=$<TARGET_FILE:chimere> -DOUT=${manual} -P ${CMAKE_SOURCE_DIR}/cmake/manual.cmake
    DEPENDS chimere ${CMAKE_SOURCE_DIR}/cmake/manual.cmake VERBATIM COMMENT "Writing man pages and completions")
  add_custom_target(manual ALL DEPENDS ${manual}/man1/chimere.1.gz)
  install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT runtime)
  install(FILES ${manual}/completion/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    RENAME chimere COMPONENT runtime)
  install(FILES ${manual}/completion/zsh DESTINATION ${CHIMERE_ZSH_DIR} RENAME _chimere COMPONENT runtime)
  install(FILES ${manual}/completion/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
    RENAME chimere.fish COMPONENT runtime)
endif()

install(FILES README.md CHANGELOG.md SECURITY.md LICENSE THIRD_PARTY_NOTICES.md TYPE DOC COMPONENT runtime)
install(DIRECTORY docs/ TYPE DOC COMPONENT runtime FILES_MATCHING PATTERN "*.md"
  PATTERN reports EXCLUDE PATTERN style.md EXCLUDE PATTERN how-to-extend.md EXCLUDE PATTERN glossary.md EXCLUDE)

# The unit names the program by its full path, which is known when it is installed.
install(DIRECTORY deploy/drop-ins DESTINATION ${data_dir} COMPONENT runtime)
install(FILES deploy/config.yaml DESTINATION ${data_dir} COMPONENT runtime)
install(FILES deploy/sysusers.conf DESTINATION lib/sysusers.d RENAME chimere.conf COMPONENT runtime)
install(CODE "
  get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  file(READ \"${CMAKE_SOURCE_DIR}/deploy/chimere.service\" unit)
  string(REPLACE \"/usr/local\" \"\${prefix}\" unit \"\${unit}\")
  file(WRITE \"${CMAKE_BINARY_DIR}/unit/chimere.service\" \"\${unit}\")
  file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\" TYPE FILE
    FILES \"${CMAKE_BINARY_DIR}/unit/chimere.service\")" COMPONENT runtime)

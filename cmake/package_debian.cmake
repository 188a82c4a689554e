# Run by CPack between installation and packaging: what Debian's policy wants elsewhere than other systems do.
set(tree ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr)
set(doc ${tree}/share/doc/chimere)
file(MAKE_DIRECTORY ${tree}/share/zsh/vendor-completions)
file(RENAME ${tree}/share/zsh/site-functions/_chimere ${tree}/share/zsh/vendor-completions/_chimere)
file(REMOVE_RECURSE ${tree}/share/zsh/site-functions)

file(READ ${doc}/THIRD_PARTY_NOTICES.md notices)
file(WRITE ${doc}/copyright "Chimere
Copyright: The Chimere authors
License: Apache-2.0; on Debian systems its text is /usr/share/common-licenses/Apache-2.0.

The page that the server shows contains packages under the licences that GET /studio/licences.txt shows.

${notices}")
file(REMOVE ${doc}/LICENSE)

# The date of the entry is that of the build, so that two builds of a commit agree.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${doc}/changelog "chimere (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * See /usr/share/doc/chimere/CHANGELOG.md.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
execute_process(COMMAND gzip -9n ${doc}/changelog COMMAND_ERROR_IS_FATAL ANY)

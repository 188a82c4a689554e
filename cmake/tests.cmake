# Tests. test/unit/test_X.c is one cmocka program; test/cli/test_X.sh drives the binary;
# test/clients/X.test.mjs drives `chimere serve` with the npm packages that people use; each
# test/fuzz/fuzz_X.c is a libFuzzer target whose corpus, test/fuzz/corpus/X/, is replayed by ctest;
# test/bench/bench_X.c is a program that script/bench runs. A new file needs no edit here.
enable_testing()
set(suite "") # so that the names of two builds' tests differ where one ctest runs both
if(NOT CHIMERE_PRESET STREQUAL "release")
  set(suite "${CHIMERE_PRESET}.")
endif()

# Limits on time are in processor time, times what the build costs.
set(slowness 1)
if(CHIMERE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(slowness 10)
elseif(CMAKE_CROSSCOMPILING)
  set(slowness 30)
endif()

if(NOT CHIMERE_KERNELS_ONLY)
  file(GLOB fuzz_sources CONFIGURE_DEPENDS test/fuzz/fuzz_*.c)
  foreach(source ${fuzz_sources})
    get_filename_component(name ${source} NAME_WE)
    string(REPLACE "fuzz_" "" corpus ${name})
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE libchimere)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY fuzz)
    if(CHIMERE_FUZZ)
      target_link_options(${name} PRIVATE -fsanitize=fuzzer -static-libstdc++ -static-libgcc)
      if(EXISTS ${CMAKE_SOURCE_DIR}/test/fuzz/mutate_${corpus}.c)
        target_sources(${name} PRIVATE test/fuzz/mutate_${corpus}.c)
      endif()
    else()
      target_sources(${name} PRIVATE test/fuzz/replay.c)
      add_test(NAME ${suite}fuzz.${corpus} COMMAND ${name} ${CMAKE_SOURCE_DIR}/test/fuzz/corpus/${corpus})
      set_tests_properties(${suite}fuzz.${corpus} PROPERTIES TIMEOUT 900)
    endif()
  endforeach()
endif()
if(CHIMERE_FUZZ)
  return() # the other tests are for the other presets
endif()

file(GLOB unit_sources CONFIGURE_DEPENDS test/unit/test_*.c)
if(CHIMERE_SANITIZE MATCHES "thread") # what has threads
  list(FILTER unit_sources INCLUDE REGEX "/test_(serve|limits|engine|pool|prefix|prefix_shared|models|api|fetch|store|queue|jobs)\\.c$")
endif()
if(CHIMERE_KERNELS_ONLY)
  # Only tests of what is built; test/cross/cmocka.h stands in for the library.
  list(FILTER unit_sources INCLUDE REGEX "/test_(base|cgroup|pool|topology|file|gguf|ops|ops_ssm|gemm)\\.c$")
  if(WIN32)
    list(FILTER unit_sources EXCLUDE REGEX "/test_(gguf|cgroup|topology)\\.c$") # fork, control groups, sysfs
  endif()
  add_library(cmocka INTERFACE)
  target_include_directories(cmocka INTERFACE test/cross)
elseif(CMOCKA_FOUND)
  add_library(cmocka ALIAS PkgConfig::CMOCKA)
endif()
if(TARGET cmocka)
  foreach(source ${unit_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE libchimere cmocka)
    target_compile_definitions(${name} PRIVATE
      TEST_DATA="${CMAKE_SOURCE_DIR}/test/data" TEST_NANO="${CMAKE_BINARY_DIR}/chimere-nano.gguf"
      TEST_SLOWNESS=${slowness})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY test)
    add_test(NAME ${suite}unit.${name} COMMAND ${name})
    set_tests_properties(${suite}unit.${name} PROPERTIES TIMEOUT 1800)
  endforeach()
  if(TARGET test_energy) # a stand-in for NVIDIA's library, loaded at run time as that is
    add_library(fake_nvml MODULE test/unit/fake_nvml.c)
    target_compile_definitions(test_energy PRIVATE FAKE_NVML="$<TARGET_FILE:fake_nvml>")
    add_dependencies(test_energy fake_nvml)
  endif()
else()
  message(STATUS "skip: unit tests: cmocka not found (script/setup --dev installs it)")
endif()

if(CHIMERE_KERNELS_ONLY)
  return()
endif()

# The CUDA kernels: on a GPU where they are built for one, else compiled as C++ over an emulator of
# threads, warps and barriers, which shows what they compute but neither races nor speed.
function(add_cuda_test name source)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ARGN} libchimere cmocka)
  target_compile_options(${name} PRIVATE -Wno-unused-function)
  target_compile_definitions(${name} PRIVATE GOLDEN_CUDA TEST_SLOWNESS=1 TEST_DATA="${CMAKE_SOURCE_DIR}/test/data")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY test)
  add_test(NAME ${suite}gpu.${name} COMMAND ${name})
  set_tests_properties(${suite}gpu.${name} PROPERTIES TIMEOUT 1800 COST 500)
endfunction()
if(TARGET cmocka AND has_cuda)
  add_cuda_test(test_cuda test/gpu/test_cuda.c)
  add_cuda_test(test_cuda_attn test/gpu/test_cuda_attn.c)
  add_cuda_test(test_cuda_dense test/gpu/test_cuda_dense.c)
  add_cuda_test(test_cuda_disk test/gpu/test_cuda_disk.c)
  add_cuda_test(test_cuda_lend test/gpu/test_cuda_lend.c)
  add_cuda_test(test_cuda_link test/gpu/test_cuda_link.c)
  add_cuda_test(test_cuda_many test/gpu/test_cuda_many.c)
  add_cuda_test(test_cuda_pool test/gpu/test_cuda_pool.c)
  add_cuda_test(test_cuda_rounds test/gpu/test_cuda_rounds.c)
  add_cuda_test(test_cuda_golden test/unit/test_golden.c)
  add_cuda_test(test_cuda_engine test/gpu/test_cuda_engine.c)
  target_sources(test_cuda_engine PRIVATE test/gpu/inject.c)
  foreach(call Malloc MallocHost EventCreate EventCreateWithFlags StreamCreateWithFlags MemcpyAsync MemsetAsync
      LaunchKernelExC GraphLaunch StreamSynchronize StreamQuery)
    target_link_options(test_cuda_engine PRIVATE LINKER:--wrap=cuda${call})
  endforeach()
elseif(TARGET cmocka AND NOT CHIMERE_SANITIZE AND NOT CHIMERE_CUDA)
  enable_language(CXX)
  file(GLOB cuda_sources CONFIGURE_DEPENDS src/kernels/cuda/*.cu)
  set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
  add_library(cuda_emulated STATIC ${cuda_sources} src/kernels/cuda/repack.c test/gpu/emu/emulate.cc)
  target_include_directories(cuda_emulated PRIVATE test/gpu/emu src)
  target_compile_definitions(cuda_emulated PUBLIC CHIMERE_EMULATE)
  target_compile_features(cuda_emulated PRIVATE cxx_std_20)
  # Pragmas and attributes are for another compiler; fibers jump between stacks, which fortify takes for a fault.
  target_compile_options(cuda_emulated PRIVATE -w -U_FORTIFY_SOURCE)
  # The functions of NVIDIA's runtime over those of its driver, and a driver over the emulator.
  find_path(CHIMERE_CUDA_H cuda.h PATHS /usr/local/cuda/include /opt/cuda/include)
  if(CHIMERE_CUDA_H)
    set_target_properties(cuda_emulated PROPERTIES POSITION_INDEPENDENT_CODE ON)
    add_library(emulated_driver SHARED test/gpu/emu/driver.cc)
    target_compile_options(emulated_driver PRIVATE -w -idirafter ${CHIMERE_CUDA_H})
    target_include_directories(emulated_driver PRIVATE test/gpu/emu src)
    target_compile_features(emulated_driver PRIVATE cxx_std_20)
    target_link_libraries(emulated_driver PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,cuda_emulated>" libchimere)
    target_link_options(emulated_driver PRIVATE -Wl,--hash-style=sysv -Wl,-Bsymbolic)
    set_target_properties(emulated_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/emulated)
    add_cuda_test(test_cuda_driver test/gpu/test_cuda_driver.c)
    target_sources(test_cuda_driver PRIVATE src/kernels/cuda/driver/driver.c)
    set_source_files_properties(src/kernels/cuda/driver/driver.c PROPERTIES COMPILE_OPTIONS "-idirafter;${CHIMERE_CUDA_H}")
    add_dependencies(test_cuda_driver emulated_driver)
    set_tests_properties(${suite}gpu.test_cuda_driver PROPERTIES ENVIRONMENT
      LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/emulated)
  endif()
  add_cuda_test(test_cuda test/gpu/test_cuda.c cuda_emulated)
  add_cuda_test(test_cuda_attn test/gpu/test_cuda_attn.c cuda_emulated)
  add_cuda_test(test_cuda_dense test/gpu/test_cuda_dense.c cuda_emulated)
  add_cuda_test(test_cuda_disk test/gpu/test_cuda_disk.c cuda_emulated)
  add_cuda_test(test_cuda_lend test/gpu/test_cuda_lend.c cuda_emulated)
  add_cuda_test(test_cuda_link test/gpu/test_cuda_link.c cuda_emulated)
  add_cuda_test(test_cuda_many test/gpu/test_cuda_many.c cuda_emulated)
  add_cuda_test(test_cuda_pool test/gpu/test_cuda_pool.c cuda_emulated)
  add_cuda_test(test_cuda_rounds test/gpu/test_cuda_rounds.c cuda_emulated)
  add_cuda_test(test_cuda_golden test/unit/test_golden.c cuda_emulated)
  add_cuda_test(test_cuda_engine test/gpu/test_cuda_engine.c cuda_emulated)
  foreach(name test_cuda test_cuda_attn test_cuda_pool) # once more as another chip, whose kernels go other ways
    add_test(NAME ${suite}gpu.${name}_120 COMMAND ${name})
    set_tests_properties(${suite}gpu.${name}_120 PROPERTIES TIMEOUT 1800 COST 400 ENVIRONMENT EMULATE_COMPUTE=120)
  endforeach()
endif()

# Objects that test_llama loads in place of one over libllama.
if(TARGET test_llama)
  foreach(version 2 99)
    add_library(llama_fake_${version} MODULE test/unit/llama_fake.c)
    set_target_properties(llama_fake_${version} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY test C_VISIBILITY_PRESET hidden)
    target_include_directories(llama_fake_${version} PRIVATE src)
    target_compile_definitions(llama_fake_${version} PRIVATE FAKE_VERSION=${version} FAKE_VOCAB=8192)
    add_dependencies(test_llama llama_fake_${version})
  endforeach()
  target_compile_definitions(test_llama PRIVATE FAKE_VOCAB=8192 TEST_FAKE="$<TARGET_FILE:llama_fake_2>"
    TEST_FAKE_OTHER="$<TARGET_FILE:llama_fake_99>")
endif()

# Run by test/cli/test_llama.sh, which has a libllama.
if(TARGET cmocka)
  add_executable(llama_engine test/peers/llama_engine.c)
  target_link_libraries(llama_engine PRIVATE libchimere cmocka)
  set_target_properties(llama_engine PROPERTIES RUNTIME_OUTPUT_DIRECTORY test)
endif()
add_executable(tiny_rerank EXCLUDE_FROM_ALL test/peers/tiny_rerank.c) # for test/peers/llama_server.py
target_link_libraries(tiny_rerank PRIVATE libchimere)
set_target_properties(tiny_rerank PROPERTIES RUNTIME_OUTPUT_DIRECTORY test)

# Preloaded by test/cli/test_full.sh, test_torture.sh, test_kill.sh and test_gpus.sh.
foreach(fault full alloc clock card)
  add_library(fault_${fault} MODULE test/faults/${fault}.c)
  set_target_properties(fault_${fault} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY test)
  target_compile_options(fault_${fault} PRIVATE -fno-sanitize=all -U_FORTIFY_SOURCE -fno-builtin)
  target_link_libraries(fault_${fault} PRIVATE ${CMAKE_DL_LIBS})
endforeach()

if(TARGET fake_nvml)
  set(fake_nvml "$<TARGET_FILE:fake_nvml>")
endif()
file(GLOB cli_tests CONFIGURE_DEPENDS test/cli/test_*.sh)
foreach(script ${cli_tests})
  get_filename_component(name ${script} NAME_WE)
  add_test(NAME ${suite}cli.${name} COMMAND bash ${script})
  set_tests_properties(${suite}cli.${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT
    "CHIMERE=$<TARGET_FILE:chimere>;TEST_DATA=${CMAKE_SOURCE_DIR}/test/data;SOURCE_DIR=${CMAKE_SOURCE_DIR};CHIMERE_MODEL=nano;FAKE_NVML=${fake_nvml};FAULT_FULL=$<TARGET_FILE:fault_full>;FAULT_ALLOC=$<TARGET_FILE:fault_alloc>;FAULT_CLOCK=$<TARGET_FILE:fault_clock>;FAULT_CARD=$<TARGET_FILE:fault_card>")
endforeach()

set_tests_properties(${suite}cli.test_rolling PROPERTIES RUN_SERIAL ON) # its probes and deadlines want a machine
set_tests_properties(${suite}cli.test_llama PROPERTIES TIMEOUT 1800) # two models, loaded dozens of times

file(GLOB client_tests CONFIGURE_DEPENDS test/clients/*.test.mjs)
foreach(source ${client_tests})
  get_filename_component(name ${source} NAME_WE)
  add_test(NAME ${suite}cli.client_${name} COMMAND bash ${CMAKE_SOURCE_DIR}/test/clients/run.sh ${source})
  set_tests_properties(${suite}cli.client_${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT
    "CHIMERE=$<TARGET_FILE:chimere>;CHIMERE_MODEL=nano")
endforeach()

# The page in a real browser, and its bundle against its sources.
file(GLOB studio_tests CONFIGURE_DEPENDS test/studio/*.test.mjs)
foreach(source ${studio_tests})
  get_filename_component(name ${source} NAME_WE)
  add_test(NAME ${suite}studio.${name} COMMAND bash ${CMAKE_SOURCE_DIR}/test/studio/run.sh ${source})
  set_tests_properties(${suite}studio.${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS studio ENVIRONMENT
    "CHIMERE=$<TARGET_FILE:chimere>;ARTEFACTS=${CMAKE_BINARY_DIR}/studio")
endforeach()
set_tests_properties(${suite}studio.speed PROPERTIES RUN_SERIAL ON)
add_test(NAME ${suite}studio.bundle COMMAND bash ${CMAKE_SOURCE_DIR}/script/studio --check)
set_tests_properties(${suite}studio.bundle PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS studio)

file(GLOB bench_sources CONFIGURE_DEPENDS test/bench/bench_*.c)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE libchimere)
  target_compile_definitions(${name} PRIVATE TEST_DATA="${CMAKE_SOURCE_DIR}/test/data"
    TEST_NANO="${CMAKE_BINARY_DIR}/chimere-nano.gguf")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY test)
endforeach()

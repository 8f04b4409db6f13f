# One static library per room. A room may link only to rooms of a lower layer; CMake refuses the rest.
#
#   k3pod_room(NAME exchange LAYER 6 SOURCES client.cc ROOMS transport wire EXT fmt)
#
# k3pod_test(NAME exchange_unit LABEL unit SOURCES a_test.cc ROOMS exchange) makes one gtest program; with
# TSAN it also runs in the thread sanitizer build, with GPU it also runs where scripts/gpu_test sends it.
# k3pod_kernel_test(NAME kernels_kda SOURCES kda_test.cc
# ROOMS kernels ops) is one that runs on a GPU; it is left out where the CUDA back end is.

set(K3POD_LAYERS
    base:0
    device:1 metrics:1 config:1 wire:1
    kernels:2 transport:2 control:2 tokenizer:2 weights:2 state:2 placement:2
    ops:3 fabric:3
    model:4 sample:4 schedule:4
    engine:5 experts:5
    api:6 exchange:6
    app:7)

function(k3pod_layer_of room out)
  foreach(pair ${K3POD_LAYERS})
    if(pair MATCHES "^${room}:([0-9]+)$")
      set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "room '${room}' is not in K3POD_LAYERS (cmake/Rooms.cmake)")
endfunction()

function(k3pod_room)
  cmake_parse_arguments(R "" "NAME" "SOURCES;ROOMS;EXT" ${ARGN})
  k3pod_layer_of(${R_NAME} layer)
  add_library(k3pod_${R_NAME} STATIC ${R_SOURCES})
  target_link_libraries(k3pod_${R_NAME} PUBLIC k3pod_flags)
  target_include_directories(k3pod_${R_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  foreach(dep ${R_ROOMS})
    k3pod_layer_of(${dep} dep_layer)
    if(NOT dep_layer LESS layer)
      message(FATAL_ERROR "room '${R_NAME}' (layer ${layer}) may not use '${dep}' (layer ${dep_layer}): "
                          "a room links only to lower layers")
    endif()
    target_link_libraries(k3pod_${R_NAME} PUBLIC k3pod_${dep})
  endforeach()
  foreach(ext ${R_EXT})
    if(NOT TARGET ext_${ext})
      message(FATAL_ERROR "room '${R_NAME}' names unknown dependency '${ext}' (cmake/Dependencies.cmake)")
    endif()
    target_link_libraries(k3pod_${R_NAME} PRIVATE ext_${ext})
  endforeach()
endfunction()

# What every test includes, compiled once.
function(k3pod_test_headers)
  file(WRITE ${CMAKE_BINARY_DIR}/test_headers.cc "")
  add_library(k3pod_test_headers OBJECT ${CMAKE_BINARY_DIR}/test_headers.cc)
  target_link_libraries(k3pod_test_headers PRIVATE k3pod_flags GTest::gtest_main GTest::gmock)
  target_compile_options(k3pod_test_headers PRIVATE -O1)
  target_precompile_headers(k3pod_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
endfunction()

# Where tests look for models/ and tests/golden/. "." for programs that are carried to another machine.
set(K3POD_TEST_ROOT ${CMAKE_SOURCE_DIR} CACHE STRING "Folder with models/ and tests/ when tests run")

function(k3pod_test)
  cmake_parse_arguments(T "TSAN;GPU" "NAME;LABEL;TIMEOUT" "SOURCES;ROOMS;EXT" ${ARGN})
  add_executable(${T_NAME} ${T_SOURCES})
  target_include_directories(${T_NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${T_NAME} PRIVATE K3POD_SOURCE_DIR="${K3POD_TEST_ROOT}"
                                               K3POD_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_link_libraries(${T_NAME} PRIVATE k3pod_flags GTest::gtest_main GTest::gmock)
  # Half of a test's time to compile is GoogleTest's headers and the optimiser; neither says anything about k3pod.
  target_compile_options(${T_NAME} PRIVATE -O1)
  target_precompile_headers(${T_NAME} REUSE_FROM k3pod_test_headers)
  foreach(room ${T_ROOMS})
    target_link_libraries(${T_NAME} PRIVATE k3pod_${room})
  endforeach()
  foreach(ext ${T_EXT})
    target_link_libraries(${T_NAME} PRIVATE ext_${ext})
  endforeach()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  # One word, matched by either half: a list does not survive gtest_discover_tests.
  set(label ${T_LABEL})
  if(T_TSAN)
    set(label ${T_LABEL}-tsan)
    set_property(GLOBAL APPEND PROPERTY K3POD_TSAN_PROGRAMS ${T_NAME})
  endif()
  if(T_GPU)
    set_property(GLOBAL APPEND PROPERTY K3POD_GPU_PROGRAMS ${T_NAME})
  endif()
  # DISCOVERY_MODE PRE_TEST: a program that was not built is a "not available" test, not a build step.
  gtest_discover_tests(${T_NAME} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES PROPERTIES LABELS ${label} TIMEOUT ${T_TIMEOUT})
endfunction()

function(k3pod_kernel_test)
  if(K3POD_HAVE_CUDA)
    k3pod_test(LABEL kernel GPU ${ARGN})
  endif()
endfunction()

function(k3pod_summary)
  if(K3POD_HAVE_CUDA)
    message(STATUS "k3pod: CUDA back end for ${K3POD_CUDA_ARCHS} by ${CMAKE_CUDA_COMPILER} "
                   "(${CMAKE_CUDA_COMPILER_VERSION})")
  elseif(K3POD_CUDA STREQUAL "OFF")
    message(STATUS "k3pod: K3POD_CUDA is OFF; the CUDA parts are left out, the CPU back end is complete")
  elseif(K3POD_SANITIZE)
    message(STATUS "k3pod: built with sanitizers; the CUDA parts are left out, the CPU back end is complete")
  else()
    message(STATUS "k3pod: no CUDA compiler; the CUDA parts are left out, the CPU back end is complete")
  endif()
endfunction()

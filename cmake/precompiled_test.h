// What most tests include, parsed once (gyre_precompile in GyreTargets.cmake). Files still include what they use.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/precompiled_library.h"

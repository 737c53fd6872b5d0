#pragma once

#include <string>

namespace gyre::train {

/// The libtorch that this process has loaded must be of the version that the program was compiled for, to its second
/// number: its C++ classes change their layout from one to the next, and a program that does not notice computes
/// nonsense or crashes somewhere else. Error(kUnsupported) shows both versions and the command that mends it.
/// Call it first, before anything else of libtorch.
void check_libtorch_version();

/// The same for a description as at::show_config() gives it; pure. One without a version passes.
void check_libtorch_version(const std::string& description, const std::string& compiled_for);

}  // namespace gyre::train

#pragma once

#include <optional>
#include <string>

#include "gyre/store/sources/aws_signature.h"

namespace gyre::store {

/// The keys of a profile in the text of a credentials file (`~/.aws/credentials`); nothing where it has no such
/// profile. Error(kInvalidArgument) where the profile lacks one of the two keys.
std::optional<AwsKeys> aws_keys_of_profile(const std::string& text, const std::string& profile);

}  // namespace gyre::store

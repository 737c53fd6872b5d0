#pragma once

#include <optional>
#include <vector>

#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {

/// Whose secrets: exactly one of the two.
struct SecretOwner {
  std::optional<Id> cluster{};
  std::optional<Id> job{};
};

void keep_secrets(Store& store, const SecretOwner& owner, const std::vector<Secret>& secrets);
/// In the order in which they were given.
std::vector<Secret> read_secrets(Store& store, const SecretOwner& owner);

}  // namespace gyre::jobs::catalog

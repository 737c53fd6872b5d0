#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace gyre {

// The accounts of this machine, as its passwd database has them where this process looks: a container, or a mount
// namespace with an /etc of its own, has others.

/// Nothing where there is no such account.
std::optional<uid_t> account_number(const std::string& name);
/// Nothing where no account has the number.
std::optional<std::string> account_name(uid_t number);
/// "ada"; "#1234" for a number that no account has, which cannot be the name of one.
std::string name_of_account(uid_t number);

}  // namespace gyre

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

class Store;

/// A user and the token that proves it. The catalog keeps only the token's hash: it cannot be shown again.
struct UserWithToken {
  User user{};
  std::string token{};
};

class Users {
 public:
  explicit Users(Store& store) : store_(store) {}

  /// The name must be free. The token is new and random.
  UserWithToken create(const std::string& name, bool is_administrator);
  /// Empty: the account that has the user's name.
  void set_account(Id id, const std::string& account);
  void set_trusted(Id id, bool is_trusted);
  /// The old token is void.
  std::string renew_token(Id id);
  /// Nobody where no user has this token.
  std::optional<User> authenticate(std::string_view token);
  std::optional<User> find(std::string_view name);
  /// Whose account it is; the first one's where there are several.
  std::optional<User> find_by_account(std::string_view account);
  std::vector<User> list();
  /// Also of its token and memberships.
  void remove(Id id);

  void add_member(Id workspace, Id user);
  void remove_member(Id workspace, Id user);
  /// Administrators may use every workspace, others those of which they are members.
  bool may_use(const User& user, Id workspace);
  std::vector<Id> workspaces_of(Id user);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog

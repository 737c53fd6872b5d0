#include "gyre/jobs/catalog/users.h"

#include <openssl/evp.h>

#include <array>

#include "gyre/base/check.h"
#include "gyre/base/random.h"
#include "gyre/jobs/catalog/internal/store.h"
#include "gyre/jobs/catalog/names.h"

namespace gyre::jobs::catalog {
namespace {

constexpr std::size_t kTokenBytes = 32;
constexpr std::string_view kSelect =
    "SELECT id, name, is_administrator, created_us, account, is_trusted FROM users WHERE ";

template <typename Bytes>
std::string hexadecimal(const Bytes& bytes) {
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::string new_token() {
  std::array<std::byte, kTokenBytes> bytes;
  fill_with_secure_random(bytes);
  return hexadecimal(bytes);
}

/// Plain SHA-256 is enough: a token has 256 random bits, which nobody guesses, with or without salt.
std::string hash_of(std::string_view token) {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  const int done = EVP_Digest(token.data(), token.size(), digest.data(), &size, EVP_sha256(), nullptr);
  GYRE_CHECK(done == 1);
  return hexadecimal(digest);
}

User read_user(const Query& row) {
  return {.id = row.integer(0),
          .name = row.text(1),
          .is_administrator = row.integer(2) != 0,
          .created = row.integer(3),
          .account = row.text(4),
          .is_trusted = row.integer(5) != 0};
}

}  // namespace

UserWithToken Users::create(const std::string& name, bool is_administrator) {
  check_name(name, "user name");
  Transaction transaction(store_.database);
  if (find(name)) throw Error(ErrorCode::kInvalidArgument, fmt::format("there is a user '{}' already", name));
  UserWithToken made{.user = {.name = name, .is_administrator = is_administrator, .created = store_.now()},
                     .token = new_token()};
  store_.database.run("INSERT INTO users (name, token_hash, is_administrator, created_us) VALUES (?1, ?2, ?3, ?4)",
                      name, hash_of(made.token), is_administrator ? 1 : 0, made.user.created);
  made.user.id = store_.database.last_insert_id();
  record(store_, {.subject = "user", .name = name, .to = "created"});
  transaction.commit();
  return made;
}

void Users::set_account(Id id, const std::string& account) {
  Transaction transaction(store_.database);
  if (store_.database.run("UPDATE users SET account = ?2 WHERE id = ?1", id, account) == 0) throw not_found("user", id);
  transaction.commit();
}

void Users::set_trusted(Id id, bool is_trusted) {
  Transaction transaction(store_.database);
  if (store_.database.run("UPDATE users SET is_trusted = ?2 WHERE id = ?1", id, is_trusted ? 1 : 0) == 0) {
    throw not_found("user", id);
  }
  transaction.commit();
}

std::string Users::renew_token(Id id) {
  Transaction transaction(store_.database);
  std::string token = new_token();
  if (store_.database.run("UPDATE users SET token_hash = ?2 WHERE id = ?1", id, hash_of(token)) == 0) {
    throw not_found("user", id);
  }
  transaction.commit();
  return token;
}

std::optional<User> Users::authenticate(std::string_view token) {
  Query query(store_.database, std::string(kSelect) + "token_hash = ?1", hash_of(token));
  return query.next() ? std::optional(read_user(query)) : std::nullopt;
}

std::optional<User> Users::find(std::string_view name) {
  Query query(store_.database, std::string(kSelect) + "name = ?1", name);
  return query.next() ? std::optional(read_user(query)) : std::nullopt;
}

std::optional<User> Users::find_by_account(std::string_view account) {
  Query query(
      store_.database,
      std::string(kSelect) + "(account = ?1 AND account <> '') OR (account = '' AND name = ?1) ORDER BY id LIMIT 1",
      account);
  return query.next() ? std::optional(read_user(query)) : std::nullopt;
}

std::vector<User> Users::list() {
  Query query(store_.database, std::string(kSelect) + "TRUE ORDER BY id");
  std::vector<User> found;
  while (query.next()) found.push_back(read_user(query));
  return found;
}

void Users::remove(Id id) {
  Transaction transaction(store_.database);
  Query query(store_.database, std::string(kSelect) + "id = ?1", id);
  if (!query.next()) throw not_found("user", id);
  const std::string name = query.text(1);
  store_.database.run("DELETE FROM users WHERE id = ?1", id);
  record(store_, {.subject = "user", .name = name, .from = "created"});
  transaction.commit();
}

void Users::add_member(Id workspace, Id user) {
  Transaction transaction(store_.database);
  Query known(store_.database, "SELECT 1 FROM workspaces, users WHERE workspaces.id = ?1 AND users.id = ?2", workspace,
              user);
  if (!known.next()) throw Error(ErrorCode::kNotFound, "there is no such workspace or no such user");
  store_.database.run("INSERT OR IGNORE INTO members (workspace_id, user_id) VALUES (?1, ?2)", workspace, user);
  transaction.commit();
}

void Users::remove_member(Id workspace, Id user) {
  Transaction transaction(store_.database);
  store_.database.run("DELETE FROM members WHERE workspace_id = ?1 AND user_id = ?2", workspace, user);
  transaction.commit();
}

bool Users::may_use(const User& user, Id workspace) {
  if (user.is_administrator) return true;
  Query query(store_.database, "SELECT 1 FROM members WHERE workspace_id = ?1 AND user_id = ?2", workspace, user.id);
  return query.next();
}

std::vector<Id> Users::workspaces_of(Id user) {
  Query query(store_.database, "SELECT workspace_id FROM members WHERE user_id = ?1 ORDER BY workspace_id", user);
  std::vector<Id> found;
  while (query.next()) found.push_back(query.integer(0));
  return found;
}

}  // namespace gyre::jobs::catalog

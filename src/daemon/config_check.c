/* Checks of values against each other and against this host. */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/guard.h"
#include "api/keys.h"
#include "base/cleanup.h"
#include "cluster/fence.h"
#include "daemon/config_endpoint.h"
#include "daemon/config_load.h"
#include "store/store.h"
#include "tls/tls.h"

/* The source of a key of export @i: its line, or the line of the entry if the key was not given */
static struct hf_config_source export_source(const struct hf_config_load *load, size_t i, const char *key)
{
	const struct hf_config_export_source *export = &load->exports[i];
	unsigned int line = export->lines[hf_option_index(hf_option_find(HF_OPTION_LIST, key))];
	struct hf_config_source source = export->whole;

	if (line)
		source.line = line;
	return source;
}

static const struct hf_config_source *source_of(const struct hf_config_load *load, const char *name)
{
	return &load->sources[hf_option_index(hf_option_find_by_name(name))];
}

static bool is_given(const struct hf_config_load *load, const char *name)
{
	const struct hf_config_source *source = source_of(load, name);

	return source->file || source->flag;
}

/* An export without a name is mounted by its path. */
static int fill_names(struct hf_config *config)
{
	for (size_t i = 0; i < config->exports.n; i++) {
		struct hf_config_export *export = &config->exports.items[i];

		if (*export->name)
			continue;
		free(export->name);
		export->name = strdup(export->path);
		if (!export->name)
			return -ENOMEM;
	}
	return 0;
}

static int name_taken(struct hf_config_load *load, size_t i, size_t other, const char *as)
{
	struct hf_config_source source = export_source(load, i, "name");
	struct hf_config_source first = export_source(load, other, as);
	char quoted[HF_CONFIG_QUOTE_SIZE], where[200];

	return hf_config_complain(
		&load->error, &source,
		"exports.name '%s' is the %s of the export of %s already; give each its own",
		hf_config_quote(quoted, sizeof(quoted), load->config->exports.items[i].name), as,
		hf_config_source_format(&first, where, sizeof(where)));
}

/* One directory may be exported under several names. A name must not be the path of another exported
 * directory, because a client can also mount that by its path. */
static int check_names(struct hf_config_load *load)
{
	const struct hf_config_exports *exports = &load->config->exports;

	for (size_t i = 0; i < exports->n; i++) {
		const struct hf_config_export *a = &exports->items[i];

		for (size_t j = 0; j < exports->n; j++) {
			const struct hf_config_export *b = &exports->items[j];

			if (j < i && strcmp(a->name, b->name) == 0)
				return name_taken(load, i, j, "name");
			if (strcmp(a->path, b->path) != 0 && strcmp(a->name, b->path) == 0)
				return name_taken(load, i, j, "path");
		}
	}
	return 0;
}

/* Does the server listen on this address? */
static bool is_served(const struct hf_config_addresses *listen, const struct hf_addr *addr)
{
	for (size_t i = 0; i < listen->n; i++) {
		const struct hf_addr *own = &listen->items[i].addr;

		if (own->family == addr->family &&
		    (hf_addr_is_any(own) || hf_addr_is_any(addr) || hf_addr_same_host(own, addr)))
			return true;
	}
	return false;
}

static int port_taken(struct hf_config_load *load, const char *key, const char *other, int64_t port)
{
	const char *mistake = is_given(load, other) ? other : key; /* a default is no mistake */

	return hf_config_complain(&load->error, source_of(load, mistake),
				  "%s and %s are both at port %" PRId64 "; give each a port of its own", key,
				  other, port);
}

/* If two parts of the server shared a port, the second would say at the start that another server has it. */
static int check_ports(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;
	bool is_portmap = config->server.portmap == HF_CONFIG_PORTMAP_AUTO ||
			  config->server.portmap == HF_CONFIG_PORTMAP_EMBEDDED;
	int64_t port = config->server.port, portmap = is_portmap ? config->server.portmap_port : 0, api;
	struct hf_endpoint endpoint;
	bool meets;

	if (config->server.portmap == HF_CONFIG_PORTMAP_SYSTEM && config->server.portmap_port == 0)
		return hf_config_complain(
			&load->error, source_of(load, "server.portmap_port"),
			"server.portmap_port is 0, and server.portmap is system; give the port "
			"of the system's rpcbind, 111");
	if (port && port == portmap)
		return port_taken(load, "server.port", "server.portmap_port", port);
	if (!hf_endpoint_parse(&endpoint, config->api.listen) || endpoint.kind != HF_ENDPOINT_TCP)
		return 0;
	api = endpoint.addr.port;
	meets = api && is_served(&config->server.listen, &endpoint.addr);
	if (meets && api == port)
		return port_taken(load, "server.port", "api.listen", api);
	if (meets && api == portmap)
		return port_taken(load, "server.portmap_port", "api.listen", api);
	return 0;
}

static int check_postgres(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;
	char unknown[HF_STORE_OPTION], quoted[HF_CONFIG_QUOTE_SIZE];

	if (config->store.backend == HF_CONFIG_BACKEND_POSTGRES && *config->store.postgres == '\0')
		return hf_config_complain(
			&load->error, source_of(load, "store.backend"),
			"store.backend is postgres, but store.postgres is empty; give a connection "
			"string, like host=db dbname=holdfast");
	if (hf_store_reads_postgres(config->store.postgres, unknown))
		return 0;
	/* Do not show the text: it may contain a password. */
	return hf_config_complain(
		&load->error, source_of(load, "store.postgres"),
		"store.postgres is a connection string that libpq cannot read%s%s%s; give one "
		"like host=db dbname=holdfast",
		*unknown ? " ('" : "", hf_config_quote(quoted, sizeof(quoted), unknown),
		*unknown ? "' is not an option)" : "");
}

/* Keys that do nothing without a service are mistakes: their operator thinks that there is a cluster. */
static int check_no_cluster(struct hf_config_load *load)
{
	static const char *const keys[] = { "cluster.addresses", "cluster.fence" };
	const bool are_set[] = { load->config->cluster.addresses.n > 0,
				 *load->config->cluster.fence != '\0' };

	for (size_t i = 0; i < HF_ARRAY_SIZE(keys); i++)
		if (are_set[i])
			return hf_config_complain(
				&load->error, source_of(load, keys[i]),
				"%s is set, but cluster.service is empty: there is no cluster; give "
				"cluster.service a name, the same on all nodes",
				keys[i]);
	return 0;
}

static int check_service_addresses(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;

	for (size_t i = 0; i < config->cluster.addresses.n; i++) {
		const struct hf_config_service_address *address = &config->cluster.addresses.items[i];
		char quoted[HF_CONFIG_QUOTE_SIZE];

		if (is_served(&config->server.listen, &address->address.addr))
			continue;
		return hf_config_complain(
			&load->error, source_of(load, "cluster.addresses"),
			"cluster.addresses contains '%s', and server.listen has neither this address nor "
			"'%s': "
			"no "
			"client could reach the service there; add one of them to server.listen",
			hf_config_quote(quoted, sizeof(quoted), address->text),
			address->address.addr.family == AF_INET ? "0.0.0.0" : "::");
	}
	return 0;
}

static int check_cluster(struct hf_config_load *load)
{
	struct hf_config *config = load->config;

	if (!hf_config_has_cluster(config))
		return check_no_cluster(load);
	if (config->store.backend != HF_CONFIG_BACKEND_POSTGRES)
		return hf_config_complain(
			&load->error, source_of(load, "cluster.service"),
			"cluster.service is set, but store.backend is not postgres: the nodes of a "
			"cluster share a database; give store.backend: postgres, or no cluster.service");
	if (!is_given(load, "recovery.after_crash"))
		config->recovery.after_crash = HF_CONFIG_AFTER_CRASH_CONTINUE;
	return check_service_addresses(load);
}

/* Keys that do nothing without a certificate are mistakes: their operator thinks that there is TLS. */
static int check_tls_keys(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;
	bool is_on = *config->tls.certificate != '\0';

	if (is_on && *config->tls.key == '\0')
		return hf_config_complain(
			&load->error, source_of(load, "tls.certificate"),
			"tls.certificate is set, but tls.key is empty; give the certificate's private key");
	if (!is_on && *config->tls.key)
		return hf_config_complain(
			&load->error, source_of(load, "tls.key"),
			"tls.key is set, but tls.certificate is empty: there is no TLS; give "
			"the key's certificate");
	if (!is_on && *config->tls.client_ca)
		return hf_config_complain(
			&load->error, source_of(load, "tls.client_ca"),
			"tls.client_ca is set, but tls.certificate is empty: there is no TLS; "
			"give tls.certificate and tls.key");
	return 0;
}

static int check_transport(struct hf_config_load *load, size_t i)
{
	const struct hf_config *config = load->config;
	const struct hf_config_export *export = &config->exports.items[i];
	struct hf_config_source transport = export_source(load, i, "transport");
	struct hf_config_source identities = export_source(load, i, "identities");
	bool is_mtls = export->transport == HF_CONFIG_TRANSPORT_MTLS;

	if (export->transport != HF_CONFIG_TRANSPORT_ANY && *config->tls.certificate == '\0')
		return hf_config_complain(&load->error, &transport,
					  "exports.transport is %s, but tls.certificate is empty: no client "
					  "could use the export; give tls.certificate and tls.key",
					  is_mtls ? "mtls" : "tls");
	if (is_mtls && *config->tls.client_ca == '\0')
		return hf_config_complain(&load->error, &transport,
					  "exports.transport is mtls, but tls.client_ca is empty: no client "
					  "could use the export; give the CA of the clients' certificates");
	if (export->identities.n && !is_mtls)
		return hf_config_complain(
			&load->error, &identities,
			"exports.identities is set, but exports.transport is not mtls: clients "
			"need no certificate; give transport: mtls, or no identities");
	return 0;
}

static int check_tls(struct hf_config_load *load)
{
	int r = check_tls_keys(load);

	for (size_t i = 0; i < load->config->exports.n && r == 0; i++)
		r = check_transport(load, i);
	return r;
}

/* The file of the token that may change something. NULL: no memory */
static char *token_file_of(const struct hf_config *config)
{
	char *path;

	if (*config->api.token_file)
		return strdup(config->api.token_file);
	return asprintf(&path, "%s/api.token", config->server.state_dir) < 0 ? NULL : path;
}

static int check_view_token_file(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;
	hf_cleanup(hf_freep) char *token_file = token_file_of(config);
	char quoted[HF_CONFIG_QUOTE_SIZE];

	if (!token_file)
		return -ENOMEM;
	if (strcmp(config->api.view_token_file, token_file) != 0)
		return 0;
	if (*config->api.token_file)
		return hf_config_complain(
			&load->error, source_of(load, "api.view_token_file"),
			"api.view_token_file and api.token_file are the same file: a token that may "
			"only look must be another one; give it a file of its own");
	return hf_config_complain(&load->error, source_of(load, "api.view_token_file"),
				  "api.view_token_file is the file of api.token_file, %s by default: a token "
				  "that may only look must be another one; give it a file of its own",
				  hf_config_quote(quoted, sizeof(quoted), token_file));
}

/* As with tls: a key that does nothing is a mistake of an operator who thinks that there is HTTPS. */
static int check_api(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;
	bool is_on = *config->api.certificate != '\0';
	struct hf_endpoint endpoint;

	if (is_on && *config->api.key == '\0')
		return hf_config_complain(
			&load->error, source_of(load, "api.certificate"),
			"api.certificate is set, but api.key is empty; give the certificate's private key");
	if (!is_on && *config->api.key)
		return hf_config_complain(&load->error, source_of(load, "api.key"),
					  "api.key is set, but api.certificate is empty: there is no HTTPS; "
					  "give the key's certificate");
	if (is_on && hf_endpoint_parse(&endpoint, config->api.listen) && endpoint.kind != HF_ENDPOINT_TCP)
		return hf_config_complain(
			&load->error, source_of(load, "api.certificate"),
			"api.certificate is set, but api.listen is no TCP port: there is no HTTPS; give "
			"api.listen as address:port, or no api.certificate");
	return check_view_token_file(load);
}

static int check_metrics(struct hf_config_load *load)
{
	if (!load->config->metrics.per_client || load->config->metrics.enabled)
		return 0;
	return hf_config_complain(
		&load->error, source_of(load, "metrics.per_client"),
		"metrics.per_client is true, and metrics.enabled is false: nothing is counted; "
		"change one of them");
}

/* The kernel forgets the locks of a server that dies, and gives them to local processes. A run that goes on
 * could not tell its clients. In a cluster, the kernel of one node does not know the locks of another. */
static int set_local_locks(struct hf_config_load *load)
{
	const char *with = hf_config_has_cluster(load->config)
				   ? "cluster.service is set: the kernel of one node does not know the locks "
				     "of another"
				   : "recovery.after_crash is continue: local processes get the locks of a "
				     "server that dies";

	for (size_t i = 0; i < load->config->exports.n; i++) {
		struct hf_config_export *export = &load->config->exports.items[i];
		struct hf_config_source source = export_source(load, i, "local_locks");

		if (export->local_locks == HF_CONFIG_LOCAL_LOCKS_ON)
			return hf_config_complain(&load->error, &source,
						  "exports.local_locks is on, and %s; change one of them",
						  with);
		export->local_locks = HF_CONFIG_LOCAL_LOCKS_OFF;
	}
	return 0;
}

/* A run that goes on where the last one ended has no grace period. */
static int check_continue(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;
	bool continues = config->recovery.after_crash == HF_CONFIG_AFTER_CRASH_CONTINUE;
	const char *mistake =
		is_given(load, "recovery.after_crash") ? "recovery.after_crash" : "recovery.grace";

	if (continues && config->recovery.grace == HF_CONFIG_GRACE_ALWAYS)
		return hf_config_complain(
			&load->error, source_of(load, mistake),
			"recovery.after_crash is continue%s, and recovery.grace is always: a server that "
			"continues has no grace period; change one of them",
			is_given(load, "recovery.after_crash") ? "" : " (the default in a cluster)");
	return continues || hf_config_has_cluster(config) ? set_local_locks(load) : 0;
}

int hf_config_check(struct hf_config_load *load)
{
	int r;

	r = fill_names(load->config);
	if (r < 0)
		return r;
	r = check_names(load);
	if (r)
		return r;
	r = check_ports(load);
	if (r)
		return r;
	r = check_postgres(load);
	if (r)
		return r;
	r = check_tls(load);
	if (r)
		return r;
	r = check_api(load);
	if (r)
		return r;
	r = check_metrics(load);
	if (r)
		return r;
	r = check_cluster(load);
	if (r)
		return r;
	return check_continue(load); /* check_cluster() may have set it */
}

static int check_directory(struct hf_config_load *load, const struct hf_config_export *export,
			   const struct hf_config_source *source)
{
	char quoted[HF_CONFIG_QUOTE_SIZE];
	struct stat st;

	hf_config_quote(quoted, sizeof(quoted), export->path);
	if (stat(export->path, &st) < 0) {
		if (errno == ENOENT)
			return hf_config_complain(
				&load->error, source,
				"exports.path '%s' does not exist; make it, or give a directory that "
				"does",
				quoted);
		return hf_config_complain(
			&load->error, source,
			"exports.path '%s' cannot be reached (%s); give a directory that can", quoted,
			strerror(errno));
	}
	if (!S_ISDIR(st.st_mode))
		return hf_config_complain(&load->error, source,
					  "exports.path '%s' is not a directory; give one", quoted);
	return 0;
}

/* The program of cluster.fence must be there now: a takeover waits for its success. */
static int check_fence(struct hf_config_load *load)
{
	const char *command = load->config->cluster.fence;
	char problem[256];
	int r = *command ? hf_fence_check(command, problem, sizeof(problem)) : 0;

	if (r != -EINVAL)
		return r;
	return hf_config_complain(&load->error, source_of(load, "cluster.fence"), "cluster.fence %s",
				  problem);
}

static int check_state_dir(struct hf_config_load *load)
{
	const char *path = load->config->server.state_dir;
	char quoted[HF_CONFIG_QUOTE_SIZE];
	struct stat st;

	/* A missing directory is fine: the server creates it at the first start. */
	if (stat(path, &st) < 0 || S_ISDIR(st.st_mode))
		return 0;
	return hf_config_complain(
		&load->error, source_of(load, "server.state_dir"),
		"server.state_dir '%s' is not a directory; give one, or a path where one can be made",
		hf_config_quote(quoted, sizeof(quoted), path));
}

/* A certificate that cannot be used is found now, not when the first client comes. */
static int check_certificates(struct hf_config_load *load)
{
	static const char *const keys[] = {
		[HF_TLS_E_CERTIFICATE] = "tls.certificate",
		[HF_TLS_E_KEY] = "tls.key",
		[HF_TLS_E_CLIENT_CA] = "tls.client_ca",
	};
	const struct hf_config *config = load->config;
	const struct hf_tls_files files = { config->tls.certificate, config->tls.key, config->tls.client_ca };
	const char *const paths[] = { NULL, files.certificate, files.key, files.client_ca };
	hf_cleanup(hf_tls_keys_freep) struct hf_tls_keys *loaded = NULL;
	char quoted[HF_CONFIG_QUOTE_SIZE], problem[HF_TLS_PROBLEM_SIZE];
	int r;

	if (*files.certificate == '\0')
		return 0;
	r = hf_tls_keys_load(&loaded, &files, problem);
	if (r <= 0)
		return r;
	return hf_config_complain(&load->error, source_of(load, keys[r]), "%s '%s' %s", keys[r],
				  hf_config_quote(quoted, sizeof(quoted), paths[r]), problem);
}

static int check_api_certificate(struct hf_config_load *load)
{
	static const char *const keys[] = {
		[HF_API_E_CERTIFICATE] = "api.certificate",
		[HF_API_E_KEY] = "api.key",
	};
	const struct hf_config *config = load->config;
	const char *const paths[] = { NULL, config->api.certificate, config->api.key };
	hf_cleanup(hf_api_keys_unrefp) struct hf_api_keys *loaded = NULL;
	char quoted[HF_CONFIG_QUOTE_SIZE], problem[HF_API_PROBLEM_SIZE];
	int r;

	if (*config->api.certificate == '\0')
		return 0;
	r = hf_api_keys_load(&loaded, config->api.certificate, config->api.key, problem);
	if (r <= 0)
		return r;
	return hf_config_complain(&load->error, source_of(load, keys[r]), "%s '%s' %s", keys[r],
				  hf_config_quote(quoted, sizeof(quoted), paths[r]), problem);
}

/* A file that is missing is made at the start, or by the reload. */
static int check_token(struct hf_config_load *load, const char *key, const char *path,
		       char token[static HF_API_TOKEN_MAX + 1])
{
	int r = *path ? hf_api_token_look(token, path) : 0;
	char quoted[HF_CONFIG_QUOTE_SIZE];

	if (r == 0 || r == -ENOENT || r == -ENODATA)
		return 0;
	hf_config_quote(quoted, sizeof(quoted), path);
	if (r == -EINVAL)
		return hf_config_complain(
			&load->error, source_of(load, key),
			"%s '%s' has fewer than 16 or more than 512 characters; give another token, or "
			"remove the file: the next start or reload makes one",
			key, quoted);
	return hf_config_complain(&load->error, source_of(load, key),
				  "%s '%s' cannot be read (%s); give a file that the server can read, or one "
				  "that does not exist: the next start or reload makes it",
				  key, quoted, strerror(-r));
}

static int check_tokens(struct hf_config_load *load)
{
	const struct hf_config *config = load->config;
	hf_cleanup(hf_freep) char *token_file = token_file_of(config);
	char token[HF_API_TOKEN_MAX + 1] = "", view[HF_API_TOKEN_MAX + 1] = "";
	int r;

	if (!token_file)
		return -ENOMEM;
	if (*config->api.listen == '\0')
		return 0;
	r = check_token(load, "api.token_file", config->api.token_file, token);
	/* A user who only checks a configuration may not be allowed to read the default file: that is no
	 * mistake, and the token stays empty. */
	if (*config->api.token_file == '\0')
		hf_api_token_look(token, token_file);
	if (r == 0)
		r = check_token(load, "api.view_token_file", config->api.view_token_file, view);
	if (r || *view == '\0' || strcmp(token, view) != 0)
		return r;
	return hf_config_complain(
		&load->error, source_of(load, "api.view_token_file"),
		"api.view_token_file and api.token_file contain the same token: one that may only "
		"look must be another one; remove a file, and the next start or reload makes it");
}

static int check_user(struct hf_config_load *load)
{
	const char *user = load->config->server.user;
	char quoted[HF_CONFIG_QUOTE_SIZE];

	if (*user == '\0' || getpwnam(user))
		return 0;
	return hf_config_complain(
		&load->error, source_of(load, "server.user"),
		"server.user '%s' is not a user of this host; give one that 'getent passwd' lists, or \"\"",
		hf_config_quote(quoted, sizeof(quoted), user));
}

int hf_config_check_host(struct hf_config_load *load)
{
	int r;

	for (size_t i = 0; i < load->config->exports.n; i++) {
		struct hf_config_source source = export_source(load, i, "path");

		r = check_directory(load, &load->config->exports.items[i], &source);
		if (r)
			return r;
	}
	r = check_fence(load);
	if (r)
		return r;
	r = check_certificates(load);
	if (r)
		return r;
	r = check_api_certificate(load);
	if (r)
		return r;
	r = check_tokens(load);
	if (r)
		return r;
	r = check_state_dir(load);
	if (r)
		return r;
	return check_user(load);
}

-- What a small cloud of the third revision holds, as its programs wrote it: two racks of two hosts, a project with a
-- group of two servers that must be apart, a cluster of one node, and the history of both.
INSERT INTO projects (id, name) VALUES ('p1', 'demo'), ('p2', 'admin');
INSERT INTO users (id, name, password_hash) VALUES ('u1', 'demo', 'x'), ('u2', 'admin', 'x');
INSERT INTO role_assignments VALUES ('u1', 'p1', 'member'), ('u2', 'p2', 'admin');
INSERT INTO topologies (name, simulation) VALUES ('of old', '{"boot_seconds": 0, "failure_rate": 0}');
INSERT INTO hosts (id, name, address, availability_zone, vcpus, memory_mb, disk_gb,
                   vcpus_used, memory_mb_used, disk_gb_used, servers)
OVERRIDING SYSTEM VALUE VALUES
    (1, 'h1', '192.0.2.1', 'zone1', 8, 16384, 100, 1, 512, 1, 1),
    (2, 'h2', '192.0.2.2', 'zone1', 8, 16384, 100, 0, 0, 0, 0),
    (3, 'h3', '192.0.2.3', 'zone1', 8, 16384, 100, 1, 512, 1, 1),
    (4, 'h4', '192.0.2.4', 'zone1', 8, 16384, 100, 0, 0, 0, 0);
INSERT INTO scopes (id, uuid, name, allow_identifiers) OVERRIDING SYSTEM VALUE
VALUES (1, '00000000-0000-4000-8000-000000000001', 'rack', true);
INSERT INTO aggregates (id, name, availability_zone, scope_id) OVERRIDING SYSTEM VALUE
VALUES (1, 'rack1', '', 1), (2, 'rack2', '', 1), (3, 'zone1', 'zone1', 0);
INSERT INTO aggregate_hosts (aggregate_id, host_id, availability_zone, scope_id)
VALUES (1, 1, '', 1), (1, 2, '', 1), (2, 3, '', 1), (2, 4, '', 1),
       (3, 1, 'zone1', 0), (3, 2, 'zone1', 0), (3, 3, 'zone1', 0), (3, 4, 'zone1', 0);
INSERT INTO fleet_changes (generation, host_ids) VALUES (1, '{1,2,3,4}');
INSERT INTO flavors (id, name, vcpus, memory_mb, disk_gb) VALUES ('1', 'm1.tiny', 1, 512, 1);
INSERT INTO images (id, name, size) VALUES ('00000000-0000-4000-8000-0000000000aa', 'cirros', 1000);
INSERT INTO keypairs (user_id, name, fingerprint, public_key) VALUES ('u1', 'laptop', 'aa:bb', 'ssh-ed25519 AAAA');
INSERT INTO quotas (project_id, resource, "limit") VALUES ('p1', 'instances', 3);
INSERT INTO server_groups (id, number, name, project_id, user_id, version) OVERRIDING SYSTEM VALUE
VALUES ('00000000-0000-4000-8000-000000000010', 1, 'apart', 'p1', 'u1', 3);
INSERT INTO server_group_policies (group_id, position, name, scope_id)
VALUES ('00000000-0000-4000-8000-000000000010', 0, 'anti-affinity', 1);
INSERT INTO servers (id, number, project_id, user_id, name, hostname, flavor, image_id, reservation_id, host_id,
                     group_id, vm_state, power_state, launched_at)
OVERRIDING SYSTEM VALUE
SELECT id::uuid, number, 'p1', 'u1', name, name,
       '{"id": "1", "name": "m1.tiny", "vcpus": 1, "memory_mb": 512, "disk_gb": 1, "root_gb": 1, "ephemeral_gb": 0,
         "swap_mb": 0, "extra_specs": {}}',
       '00000000-0000-4000-8000-0000000000aa', 'r-' || number, host,
       CASE WHEN number < 3 THEN '00000000-0000-4000-8000-000000000010'::uuid END, 'active', 1, now()
FROM (VALUES ('00000000-0000-4000-8000-000000000021', 1, 'one', 1),
             ('00000000-0000-4000-8000-000000000022', 2, 'two', 3)) AS of_old (id, number, name, host);
INSERT INTO claims SELECT id, host_id, 1, 512, 1 FROM servers;
INSERT INTO project_usage (project_id, instances, cores, ram, server_groups) VALUES ('p1', 2, 2, 1024, 1);
INSERT INTO instance_actions (server_id, action, request_id, user_id, project_id, finish_time)
SELECT id, 'create', 'req-00000000-0000-4000-8000-000000000099', 'u1', 'p1', now() FROM servers;
INSERT INTO migrations (server_id, type, status, source, destination, user_id, project_id)
VALUES ('00000000-0000-4000-8000-000000000021', 'live-migration', 'completed', 'h2', 'h1', 'u2', 'p2');
INSERT INTO outbox (event_type, payload) VALUES ('server_group.create', '{"nova_object.data": {"name": "apart"}}');
INSERT INTO profiles (id, name, type, spec, user_id, project_id)
VALUES ('f1', 'small', 'os.nova.server-1.0',
        '{"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1", "name": "n"}}', 'u1', 'p1');
INSERT INTO clusters (id, name, profile_id, desired_capacity, next_index, timeout, status, created_at, user_id, project_id)
VALUES ('c1', 'web', 'f1', 1, 2, 3600, 'ACTIVE', now(), 'u1', 'p1');
INSERT INTO nodes (id, name, profile_id, cluster_id, physical_id, index, status, created_at, user_id, project_id)
VALUES ('n1', 'web-1', 'f1', 'c1', '00000000-0000-4000-8000-000000000022', 1, 'ACTIVE', now(), 'u1', 'p1');
INSERT INTO actions (id, name, action, target, cluster_id, cause, timeout, status, start_time, end_time, user_id, project_id)
VALUES ('a1', 'cluster_create_c1', 'CLUSTER_CREATE', 'c1', 'c1', 'RPC Request', 3600, 'SUCCEEDED', now(), now(), 'u1', 'p1');
INSERT INTO events (id, oid, oname, otype, cluster_id, level, action, status, user_id, project_id)
VALUES ('e1', 'c1', 'web', 'CLUSTER', 'c1', 20, 'CLUSTER_CREATE', 'end', 'u1', 'p1');
SELECT setval(pg_get_serial_sequence(kind, field), 100)
FROM (VALUES ('hosts', 'id'), ('scopes', 'id'), ('aggregates', 'id'), ('server_groups', 'number'),
             ('servers', 'number')) AS counted (kind, field);

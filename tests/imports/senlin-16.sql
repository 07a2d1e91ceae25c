BEGIN TRANSACTION;
CREATE TABLE "action" (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(63), 
	context TEXT, 
	target VARCHAR(36), 
	action TEXT, 
	cause VARCHAR(255), 
	owner VARCHAR(36), 
	interval INTEGER, 
	start_time NUMERIC(18, 6), 
	end_time NUMERIC(18,6), 
	timeout INTEGER, 
	control VARCHAR(255), 
	status VARCHAR(255), 
	status_reason TEXT, 
	inputs TEXT, 
	outputs TEXT, 
	depends_on TEXT, 
	depended_by TEXT, 
	created_at DATETIME, 
	updated_at DATETIME, 
	data TEXT, 
	user VARCHAR(64), 
	project VARCHAR(64), 
	domain VARCHAR(64), cluster_id VARCHAR(36), 
	PRIMARY KEY (id)
);
INSERT INTO "action" VALUES('ed98c6dc-1e16-5b13-a3fc-7c895460bf55','scale','{"user": "5e1f0000000000000000000000000001", "project_id": "5e1f0000000000000000000000000002", "system_scope": null, "project": "5e1f0000000000000000000000000002", "domain": "default", "user_domain": null, "project_domain": null, "is_admin": true, "read_only": false, "show_deleted": false, "auth_token": null, "request_id": "req-a19a6f20-6e04-409f-9d91-65827d26fe2c", "global_request_id": null, "resource_uuid": null, "roles": [], "user_identity": "5e1f0000000000000000000000000001 5e1f0000000000000000000000000002 default - -", "is_admin_project": true, "auth_url": null, "auth_token_info": null, "user_id": "5e1f0000000000000000000000000001", "user_name": null, "user_domain_name": null, "project_name": null, "project_domain_name": null, "domain_id": "default", "domain_name": null, "trusts": ["trust-1"], "region_name": null, "password": null, "api_version": null}','b5820f40-56c9-5e0f-b04f-a27a5e0f2cb6','CLUSTER_SCALE_OUT','RPC Request',NULL,-1,NULL,NULL,3600,NULL,'RUNNING','','{"count": 2}','{}',NULL,NULL,'2026-11-16 04:15:51.372505',NULL,'{}','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default','b5820f40-56c9-5e0f-b04f-a27a5e0f2cb6');
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('004f8202c264');
CREATE TABLE "cluster" (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	profile_id VARCHAR(36) NOT NULL, 
	user VARCHAR(64) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	domain VARCHAR(64), 
	parent VARCHAR(36), 
	init_at DATETIME, 
	created_at DATETIME, 
	updated_at DATETIME, 
	min_size INTEGER, 
	max_size INTEGER, 
	desired_capacity INTEGER, 
	next_index INTEGER, 
	timeout INTEGER, 
	status VARCHAR(255), 
	status_reason TEXT, 
	meta_data TEXT, 
	data TEXT, 
	dependents TEXT, config TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(profile_id) REFERENCES profile (id)
);
INSERT INTO "cluster" VALUES('a23c499f-6b21-568c-95b3-86a8d40e2397','main','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','',NULL,'2026-11-16 04:15:49.831367',NULL,'2026-11-16 04:15:50.416520',0,10,3,4,3600,'ACTIVE','CLUSTER_CREATE: number of active nodes is equal or above','{"tier": "front"}','{}','{}','{"node.name.format": "web-$3I"}');
INSERT INTO "cluster" VALUES('d84f58e3-4852-5ca5-ad51-13c26eea5132','behind','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','',NULL,'2026-11-16 04:15:50.496621',NULL,'2026-11-16 04:15:50.698664',0,10,2,3,3600,'ACTIVE','CLUSTER_CREATE: number of active nodes is equal or above','{}','{"loadbalancers": {"4d38976d-409d-5197-86c5-dbbd55889138": {"vip_address": "192.0.2.10"}}}','{}','{}');
INSERT INTO "cluster" VALUES('c09b205c-7401-5a21-ba3e-ce523bdfd130','odd','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','',NULL,'2026-11-16 04:15:50.746717',NULL,'2026-11-16 04:15:50.988273',0,10,1,2,3600,'RESIZING','left by an engine that died','{}','{}','{}','{}');
INSERT INTO "cluster" VALUES('30220fb1-9579-5f9e-ba22-df6e1e1ee4f8','stacks','40c74b13-1d77-5c2e-8969-f77ffbda9a39','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','',NULL,'2026-11-16 04:15:51.006685',NULL,'2026-11-16 04:15:51.103507',0,10,1,2,3600,'ACTIVE','CLUSTER_CREATE: number of active nodes is equal or above','{}','{}','{}','{}');
INSERT INTO "cluster" VALUES('b5820f40-56c9-5e0f-b04f-a27a5e0f2cb6','growing','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','',NULL,'2026-11-16 04:15:51.138809',NULL,'2026-11-16 04:15:51.312903',0,10,2,3,3600,'ACTIVE','CLUSTER_CREATE: number of active nodes is equal or above','{}','{}','{}','{}');
CREATE TABLE cluster_lock (
	cluster_id VARCHAR(36) NOT NULL, 
	action_ids TEXT, 
	semaphore INTEGER, 
	PRIMARY KEY (cluster_id)
);
INSERT INTO "cluster_lock" VALUES('b5820f40-56c9-5e0f-b04f-a27a5e0f2cb6','["ed98c6dc-1e16-5b13-a3fc-7c895460bf55"]',-1);
CREATE TABLE cluster_policy (
	id VARCHAR(36) NOT NULL, 
	cluster_id VARCHAR(36) NOT NULL, 
	policy_id VARCHAR(36) NOT NULL, 
	cooldown INTEGER, 
	priority INTEGER, 
	level INTEGER, 
	enabled BOOLEAN, 
	data TEXT, 
	last_op DATETIME, 
	PRIMARY KEY (id), 
	FOREIGN KEY(cluster_id) REFERENCES cluster (id), 
	FOREIGN KEY(policy_id) REFERENCES policy (id)
);
INSERT INTO "cluster_policy" VALUES('85779573-8a8c-586e-a794-66e0829035b3','a23c499f-6b21-568c-95b3-86a8d40e2397','8610ac59-3884-5841-850e-20188b2b10d9',NULL,100,NULL,1,'null',NULL);
INSERT INTO "cluster_policy" VALUES('96358247-e580-5da1-925f-211f7ffdb265','a23c499f-6b21-568c-95b3-86a8d40e2397','723f2a58-573b-52ce-906a-f187234d794b',NULL,400,NULL,1,'null',NULL);
INSERT INTO "cluster_policy" VALUES('f648ed7a-ef7d-5106-b8c0-620efa3328b7','a23c499f-6b21-568c-95b3-86a8d40e2397','3ce2c2f0-3e6d-5349-8fea-1fdd54a533b4',NULL,300,NULL,1,'null',NULL);
INSERT INTO "cluster_policy" VALUES('9a45eba2-ac8b-5ac9-9166-4fd150dacb62','a23c499f-6b21-568c-95b3-86a8d40e2397','519d19b3-e681-5840-8f8a-5680cd674784',NULL,300,NULL,1,'{"AffinityPolicy": {"version": "1.0", "data": {"inherited_group": false, "servergroup_id": "9a000000-0000-4000-8000-000000000001"}}}',NULL);
INSERT INTO "cluster_policy" VALUES('0dd5800d-5639-5d09-a30f-60e31b7fa620','a23c499f-6b21-568c-95b3-86a8d40e2397','33c41142-ef8b-5c78-8f9b-cd69448aeed1',NULL,600,NULL,1,'{"HealthPolicy": {"version": "1.2", "data": {"interval": 60, "node_update_timeout": 300, "recovery_conditional": "ANY_FAILED", "node_delete_timeout": 20, "node_force_recreate": false, "detection_modes": [{"type": "NODE_STATUS_POLLING", "poll_url": "", "poll_url_ssl_verify": true, "poll_url_conn_error_as_unhealthy": true, "poll_url_healthy_response": "", "poll_url_retry_limit": "", "poll_url_retry_interval": ""}]}}}',NULL);
INSERT INTO "cluster_policy" VALUES('5851c820-84a5-5e42-b79b-0dbab7f30726','d84f58e3-4852-5ca5-ad51-13c26eea5132','4d38976d-409d-5197-86c5-dbbd55889138',NULL,500,NULL,1,'{"LoadBalancingPolicy": {"version": "1.3", "data": {"loadbalancer": "lb-1", "listener": "listener-1", "pool": "pool-1", "healthmonitor": "monitor-1"}}}',NULL);
INSERT INTO "cluster_policy" VALUES('cda35ea9-714f-5e04-ac9d-5d48f5cfb892','d84f58e3-4852-5ca5-ad51-13c26eea5132','3b62b3f8-f2ee-50e4-a5fc-c640dc67ffb1',NULL,300,NULL,1,'null',NULL);
INSERT INTO "cluster_policy" VALUES('e4e544df-00bc-51b9-a4f0-ade8db226a6a','c09b205c-7401-5a21-ba3e-ce523bdfd130','3ce2c2f0-3e6d-5349-8fea-1fdd54a533b4',NULL,300,NULL,1,'null',NULL);
INSERT INTO "cluster_policy" VALUES('3648747b-f41e-54b3-8a28-d9318ef3f7a4','c09b205c-7401-5a21-ba3e-ce523bdfd130','3bce763c-e839-5d24-ad3d-636f660a63d1',NULL,300,NULL,1,'{"AffinityPolicy": {"version": "1.0", "data": {"inherited_group": false, "servergroup_id": "9a000000-0000-4000-8000-000000000001"}}}',NULL);
CREATE TABLE "credential" (
	user VARCHAR(64) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	cred TEXT NOT NULL, 
	data TEXT, 
	PRIMARY KEY (user, project)
);
INSERT INTO "credential" VALUES('5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','{"openstack": {"trust": "trust-1"}}','null');
CREATE TABLE dependency (
	id VARCHAR(36) NOT NULL, 
	depended VARCHAR(36) NOT NULL, 
	dependent VARCHAR(36) NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(depended) REFERENCES action (id), 
	FOREIGN KEY(dependent) REFERENCES action (id)
);
CREATE TABLE "event" (
	id VARCHAR(36) NOT NULL, 
	timestamp DATETIME NOT NULL, 
	oid VARCHAR(36), 
	oname VARCHAR(255), 
	otype VARCHAR(36), 
	cluster_id VARCHAR(36), 
	level VARCHAR(63), 
	user VARCHAR(64), 
	project VARCHAR(64), 
	action VARCHAR(36), 
	status VARCHAR(255), 
	status_reason TEXT, 
	meta_data TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "event" VALUES('db8afd59-742f-5abb-9199-2b24df2dfdb4','2026-11-16 04:15:51.641151','a23c499f-6b21-568c-95b3-86a8d40e2397','main','CLUSTER','a23c499f-6b21-568c-95b3-86a8d40e2397','20','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','CLUSTER_SCALE_OUT','end','scaled out','{}');
INSERT INTO "event" VALUES('84797ea6-774f-5a2b-8c86-f6fb0f1463d9','2026-11-16 04:15:51.717896','d84f58e3-4852-5ca5-ad51-13c26eea5132','behind','CLUSTER','d84f58e3-4852-5ca5-ad51-13c26eea5132','20','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','CLUSTER_SCALE_OUT','end','scaled out','{}');
CREATE TABLE health_registry (
	id VARCHAR(36) NOT NULL, 
	cluster_id VARCHAR(36) NOT NULL, 
	check_type VARCHAR(255), 
	interval INTEGER, 
	params TEXT, 
	engine_id VARCHAR(36), enabled BOOLEAN, 
	PRIMARY KEY (id), 
	FOREIGN KEY(cluster_id) REFERENCES cluster (id)
);
INSERT INTO "health_registry" VALUES('923ab20d-08ae-5273-a74d-a882fcfb46b3','a23c499f-6b21-568c-95b3-86a8d40e2397','NODE_STATUS_POLLING',60,'{"recover_action": [{"name": "RECREATE", "params": null}], "node_delete_timeout": 20, "node_force_recreate": false, "recovery_conditional": "ANY_FAILED", "detection_modes": [{"type": "NODE_STATUS_POLLING", "poll_url": "", "poll_url_ssl_verify": true, "poll_url_conn_error_as_unhealthy": true, "poll_url_healthy_response": "", "poll_url_retry_limit": "", "poll_url_retry_interval": ""}]}','engine-1',1);
CREATE TABLE "node" (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255), 
	physical_id VARCHAR(36), 
	cluster_id VARCHAR(36), 
	profile_id VARCHAR(36) NOT NULL, 
	user VARCHAR(64), 
	project VARCHAR(64), 
	domain VARCHAR(64), 
	"index" INTEGER, 
	role VARCHAR(64), 
	init_at DATETIME, 
	created_at DATETIME, 
	updated_at DATETIME, 
	status VARCHAR(255), 
	status_reason TEXT, 
	meta_data TEXT, 
	data TEXT, 
	dependents TEXT, tainted BOOLEAN, 
	PRIMARY KEY (id), 
	FOREIGN KEY(profile_id) REFERENCES profile (id)
);
INSERT INTO "node" VALUES('f892e551-b3c3-58e3-bd9c-705f426b9c52','main-node-001','cd00f8da-a00a-5289-87d3-92e391246f55','a23c499f-6b21-568c-95b3-86a8d40e2397','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',1,'','2026-11-16 04:15:49.912386','2026-11-16 04:15:49.928189','2026-11-16 04:15:49.928193','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone2"}}','{}',0);
INSERT INTO "node" VALUES('b63a47b3-e765-55a0-b9c2-d1f53efa1483','main-node-002','14250a70-ca82-591b-a704-1c4d4a0f2ec3','a23c499f-6b21-568c-95b3-86a8d40e2397','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',2,'','2026-11-16 04:15:49.954239','2026-11-16 04:15:49.963496','2026-11-16 04:15:49.963500','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone3"}}','{}',0);
INSERT INTO "node" VALUES('547132f5-5aa0-5911-bfee-c0a7dbdbf26d','main-node-003','93a3f763-034d-5c2c-945a-4e674fce1d1a','a23c499f-6b21-568c-95b3-86a8d40e2397','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',3,'','2026-11-16 04:15:49.990779','2026-11-16 04:15:50.001622','2026-11-16 04:15:50.001627','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone1"}}','{}',0);
INSERT INTO "node" VALUES('d458951c-0d65-5553-84cd-afedfd2f7679','behind-node-001','617632c2-fc35-585e-8f0b-092c9c96fe19','d84f58e3-4852-5ca5-ad51-13c26eea5132','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',1,'','2026-11-16 04:15:50.530847','2026-11-16 04:15:50.545503','2026-11-16 04:15:50.545515','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone2"}, "lb_member": "member-1"}','{}',0);
INSERT INTO "node" VALUES('4e49aa9a-c4d5-5663-92bd-01649df3a976','behind-node-002','e812b1c1-26db-5804-8d88-471980507601','d84f58e3-4852-5ca5-ad51-13c26eea5132','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',2,'','2026-11-16 04:15:50.570736','2026-11-16 04:15:50.581556','2026-11-16 04:15:50.581561','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone3"}, "lb_member": "member-2"}','{}',0);
INSERT INTO "node" VALUES('1e744eff-8592-529f-adc1-939273c8869a','odd-node-001','a7a357da-5fa8-5292-b64e-fe6a674bda25','c09b205c-7401-5a21-ba3e-ce523bdfd130','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',1,'','2026-11-16 04:15:50.782012','2026-11-16 04:15:50.794333','2026-11-16 04:15:50.794338','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone2"}}','{}',0);
INSERT INTO "node" VALUES('171870c8-bc53-53ec-a31c-b4d8690dd697','stacks-node-001','19d9ae38-5f6a-5229-bad5-b1a5ea2b1e04','30220fb1-9579-5f9e-ba22-df6e1e1ee4f8','40c74b13-1d77-5c2e-8969-f77ffbda9a39','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',1,'','2026-11-16 04:15:51.051872','2026-11-16 04:15:51.083392','2026-11-16 04:15:51.083397','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone2"}}','{}',0);
INSERT INTO "node" VALUES('2d146c57-e53e-5617-9bbb-15e41ca2ac7f','growing-node-001','02bad1e6-0c04-5d36-ac59-4ec3acf28b3b','b5820f40-56c9-5e0f-b04f-a27a5e0f2cb6','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',1,'','2026-11-16 04:15:51.210016','2026-11-16 04:15:51.231709','2026-11-16 04:15:51.231714','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone2"}}','{}',0);
INSERT INTO "node" VALUES('dc5502b5-cef2-55b1-bb37-c787d563cb56','growing-node-002','71371b1f-bba8-5833-b886-343a9bd0ede4','b5820f40-56c9-5e0f-b04f-a27a5e0f2cb6','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',2,'','2026-11-16 04:15:51.261379','2026-11-16 04:15:51.289630','2026-11-16 04:15:51.289635','ACTIVE','Creation succeeded','{}','{"placement": {"zone": "zone3"}}','{}',0);
INSERT INTO "node" VALUES('6203a589-b487-5443-84a5-b834bd6cb7b0','alone-000','1e3270de-cc5f-5583-8e59-cd8b08549aa4','','fbcaeb66-7709-5f68-be0b-455f426be4b3','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',-1,'master','2026-11-16 04:15:51.427969','2026-11-16 04:15:51.454729','2026-11-16 04:15:51.454733','ACTIVE','Creation succeeded','{}','{}','{}',0);
CREATE TABLE node_lock (
	node_id VARCHAR(36) NOT NULL, 
	action_id VARCHAR(36), 
	PRIMARY KEY (node_id)
);
CREATE TABLE "policy" (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255), 
	type VARCHAR(255), 
	user VARCHAR(64) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	domain VARCHAR(64), 
	cooldown INTEGER, 
	level INTEGER, 
	created_at DATETIME, 
	updated_at DATETIME, 
	spec TEXT, 
	data TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "policy" VALUES('8610ac59-3884-5841-850e-20188b2b10d9','scaling','senlin.policy.scaling-1.0','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.681260',NULL,'{"type": "senlin.policy.scaling", "version": "1.0", "properties": {"event": "CLUSTER_SCALE_OUT", "adjustment": {"number": 2, "cooldown": 60}}}','{}');
INSERT INTO "policy" VALUES('723f2a58-573b-52ce-906a-f187234d794b','deletion','senlin.policy.deletion-1.0','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.699804',NULL,'{"type": "senlin.policy.deletion", "version": "1.0", "properties": {"criteria": "OLDEST_FIRST", "destroy_after_deletion": true}}','{}');
INSERT INTO "policy" VALUES('3ce2c2f0-3e6d-5349-8fea-1fdd54a533b4','zones','senlin.policy.zone_placement-1.0','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.721389',NULL,'{"type": "senlin.policy.zone_placement", "version": "1.0", "properties": {"zones": [{"name": "zone1", "weight": 100}, {"name": "zone2", "weight": 100}, {"name": "zone3", "weight": 100}]}}','{}');
INSERT INTO "policy" VALUES('519d19b3-e681-5840-8f8a-5680cd674784','apart','senlin.policy.affinity-1.0','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.740871',NULL,'{"type": "senlin.policy.affinity", "version": "1.0", "properties": {"servergroup": {"name": "apart", "policies": "soft-anti-affinity"}}}','{}');
INSERT INTO "policy" VALUES('3bce763c-e839-5d24-ad3d-636f660a63d1','pinned','senlin.policy.affinity-1.0','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.757073',NULL,'{"type": "senlin.policy.affinity", "version": "1.0", "properties": {"servergroup": {"policies": "anti-affinity"}, "availability_zone": "zone1"}}','{}');
INSERT INTO "policy" VALUES('33c41142-ef8b-5c78-8f9b-cd69448aeed1','health','senlin.policy.health-1.1','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.773508',NULL,'{"type": "senlin.policy.health", "version": "1.1", "properties": {"detection": {"interval": 60, "detection_modes": [{"type": "NODE_STATUS_POLLING"}]}, "recovery": {"actions": [{"name": "RECREATE"}]}}}','{}');
INSERT INTO "policy" VALUES('4d38976d-409d-5197-86c5-dbbd55889138','balance','senlin.policy.loadbalance-1.1','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.793068',NULL,'{"type": "senlin.policy.loadbalance", "version": "1.1", "properties": {"pool": {"protocol_port": 8080, "subnet": "private"}, "vip": {"subnet": "private", "protocol_port": 80}}}','{}');
INSERT INTO "policy" VALUES('3b62b3f8-f2ee-50e4-a5fc-c640dc67ffb1','nothing','senlin.policy.zone_placement-1.0','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default',NULL,NULL,'2026-11-16 04:15:49.811587',NULL,'{"type": "senlin.policy.zone_placement", "version": "1.0", "properties": {"zones": [{"name": "zone1", "weight": 0}]}}','{}');
CREATE TABLE "profile" (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255), 
	type VARCHAR(255), 
	context TEXT, 
	spec TEXT, 
	user VARCHAR(64) NOT NULL, 
	project VARCHAR(64) NOT NULL, 
	domain VARCHAR(64), 
	permission VARCHAR(32), 
	meta_data TEXT, 
	created_at DATETIME, 
	updated_at DATETIME, 
	PRIMARY KEY (id)
);
INSERT INTO "profile" VALUES('fbcaeb66-7709-5f68-be0b-455f426be4b3','web','os.nova.server-1.0','{"auth_url": "", "username": "senlin", "password": "", "user_domain_name": "Default", "verify": true, "interface": "public"}','{"type": "os.nova.server", "version": "1.0", "properties": {"flavor": "1", "image": "cirros-0.6.2-x86_64-disk", "name": "web", "networks": [{"network": "public"}]}}','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002',NULL,NULL,'{"team": "web"}','2026-11-16 04:15:49.616082',NULL);
INSERT INTO "profile" VALUES('40c74b13-1d77-5c2e-8969-f77ffbda9a39','stack','os.heat.stack-1.0','{"auth_url": "", "username": "senlin", "password": "", "user_domain_name": "Default", "verify": true, "interface": "public"}','{"type": "os.heat.stack", "version": "1.0", "properties": {"template": {"heat_template_version": "2021-04-16"}}}','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002',NULL,NULL,'{"team": "web"}','2026-11-16 04:15:49.641295',NULL);
INSERT INTO "profile" VALUES('73da660d-d70e-5da4-aa2b-70ac741f0478','spare','os.nova.server-1.0','{"auth_url": "", "username": "senlin", "password": "", "user_domain_name": "Default", "verify": true, "interface": "public"}','{"type": "os.nova.server", "version": 1.0, "properties": {"flavor": "1", "image": "cirros-0.6.2-x86_64-disk", "name": "web", "networks": [{"network": "public"}]}}','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002',NULL,NULL,'{"team": "web"}','2026-11-16 04:15:49.663658',NULL);
CREATE TABLE "receiver" (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255), 
	type VARCHAR(255), 
	user VARCHAR(64), 
	project VARCHAR(64), 
	domain VARCHAR(64), 
	created_at DATETIME, 
	updated_at DATETIME, 
	cluster_id VARCHAR(36), 
	actor TEXT, 
	action TEXT, 
	params TEXT, 
	channel TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "receiver" VALUES('bad90d80-f708-5143-a4f1-c2252ec30098','out','webhook','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default','2026-11-16 04:15:51.481966',NULL,'a23c499f-6b21-568c-95b3-86a8d40e2397','{"trust_id": "trust-1"}','CLUSTER_SCALE_OUT','{"count": 2}','{"alarm_url": "http://senlin.example:8777/v1/webhooks/bad90d80-f708-5143-a4f1-c2252ec30098/trigger?V=2&count=2"}');
INSERT INTO "receiver" VALUES('41d632df-2022-5f4d-a3b1-2a1a16aa9a32','add','webhook','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default','2026-11-16 04:15:51.502252',NULL,'a23c499f-6b21-568c-95b3-86a8d40e2397','{"trust_id": "trust-1"}','CLUSTER_ADD_NODES','{"count": 2}','{"alarm_url": "http://senlin.example:8777/v1/webhooks/41d632df-2022-5f4d-a3b1-2a1a16aa9a32/trigger?V=2&count=2"}');
INSERT INTO "receiver" VALUES('1cfb6f90-1792-5349-b5a9-63cfedef6692','letters','message','5e1f0000000000000000000000000001','5e1f0000000000000000000000000002','default','2026-11-16 04:15:51.513043',NULL,NULL,'{"trust_id": ["trust-1"]}',NULL,'{}','{"queue_name": "senlin-receiver-1cfb6f90-1792-5349-b5a9-63cfedef6692", "subscription": "subscription-1"}');
CREATE TABLE service (
	id VARCHAR(36) NOT NULL, 
	host VARCHAR(255), 
	binary VARCHAR(255), 
	topic VARCHAR(255), 
	disabled BOOLEAN, 
	disabled_reason VARCHAR(255), 
	created_at DATETIME, 
	updated_at DATETIME, 
	PRIMARY KEY (id)
);
COMMIT;
